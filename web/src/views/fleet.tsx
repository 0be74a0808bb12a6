// All jobs: what is wrong first, then each job, then what is to blame again and again.
import type { PageJob, PageOffender } from "../messages";
import { kindWord, ms } from "../format";
import { useLive } from "../live";
import { linkTo } from "../route";
import { Table, type Column } from "../parts/table";
import { Name, Since, Time } from "../parts/time";
import { Mark, VerdictLine } from "../parts/verdict";

const WORDS: Record<string, string> = {
  PAGE_JOB_STATE_RUNNING: "runs",
  PAGE_JOB_STATE_SILENT: "master silent",
  PAGE_JOB_STATE_ENDED: "ended",
  PAGE_JOB_STATE_RECORDED: "recording",
};

export function stateOfJob(job: PageJob): { word: string; mark: string } {
  const word = WORDS[job.state ?? ""] ?? "not known";
  const over = job.state === "PAGE_JOB_STATE_ENDED";
  if (!over && (job.confirmed ?? 0) > 0) return { word: "trouble", mark: "confirmed" };
  if (!over && (job.suspected ?? 0) > 0) return { word: "suspected", mark: "suspected" };
  if (job.state === "PAGE_JOB_STATE_SILENT") return { word, mark: "silent" };
  return { word, mark: over ? "over" : "cleared" };
}

const columns: Column<PageJob>[] = [
  {
    head: "state",
    value: (job) => stateOfJob(job).word,
    show: (job) => (
      <span class="jobstate">
        <Mark state={stateOfJob(job).mark} /> {stateOfJob(job).word}
      </span>
    ),
  },
  { head: "job", value: (job) => job.job ?? "", show: (job) => <a href={linkTo("job", job.id ?? "")}><Name text={job.job} /></a> },
  { head: "ranks", value: (job) => job.ranks ?? 0, number: true },
  { head: "nodes", value: (job) => job.hosts ?? 0, number: true, show: (job) => job.hosts || "" },
  { head: "confirmed", value: (job) => job.confirmed ?? 0, number: true, show: (job) => job.confirmed || "" },
  { head: "suspected", value: (job) => job.suspected ?? 0, number: true, show: (job) => job.suspected || "" },
  { head: "began", value: (job) => ms(job.beganUnixNs), show: (job) => <Time at={ms(job.beganUnixNs)} /> },
  { head: "for (s)", value: (job) => Math.round(((ms(job.endedUnixNs) || Date.now()) - ms(job.beganUnixNs)) / 1000), number: true, show: (job) => <Since at={ms(job.beganUnixNs)} until={ms(job.endedUnixNs)} /> },
  { head: "rank hours lost", value: (job) => (job.lostRankSeconds ?? 0) / 3600, number: true, show: (job) => (job.lostRankSeconds ? (job.lostRankSeconds / 3600).toFixed(2) : "") },
  { head: "why", value: (job) => job.trouble || job.why || "", show: (job) => <Name text={job.trouble || job.why || " "} /> },
];

const offenders: Column<PageOffender>[] = [
  { head: "what", value: (item) => kindWord(item.kind) },
  { head: "name", value: (item) => item.name ?? "", show: (item) => <Name text={item.name} /> },
  { head: "confirmed verdicts", value: (item) => item.verdicts ?? 0, number: true },
  { head: "jobs", value: (item) => item.jobIds?.length ?? 0, number: true },
  { head: "newest", value: (item) => ms(item.newestUnixNs), show: (item) => <Time at={ms(item.newestUnixNs)} date /> },
];

export function FleetView() {
  const { fleet, trouble } = useLive();
  if (!fleet) return <p class="wait">{trouble ? "Nothing is known yet." : "The masters are being asked."}</p>;
  const jobs = fleet.jobs ?? [];
  const count = (test: (job: PageJob) => boolean) => jobs.filter(test).length;
  const byId = new Map(jobs.map((job) => [job.id, job]));
  const running = count((job) => job.state === "PAGE_JOB_STATE_RUNNING");
  const silent = count((job) => job.state === "PAGE_JOB_STATE_SILENT");
  const confirmed = jobs.reduce((sum, job) => sum + (job.state === "PAGE_JOB_STATE_ENDED" ? 0 : job.confirmed ?? 0), 0);
  return (
    <>
      <h1 class="unseen">Fleet</h1>
      <ul class="tiles">
        <li class={confirmed ? "confirmed" : "cleared"}>
          <b>{confirmed}</b> confirmed verdict{confirmed === 1 ? "" : "s"}
        </li>
        <li>
          <b>{running}</b> job{running === 1 ? "" : "s"} running
        </li>
        {silent > 0 && (
          <li class="suspected">
            <b>{silent}</b> master{silent === 1 ? "" : "s"} silent
          </li>
        )}
        <li>
          <b>{count((job) => job.state === "PAGE_JOB_STATE_ENDED")}</b> ended
        </li>
      </ul>
      <section>
        <h2>What is wrong now</h2>
        {(fleet.open?.length ?? 0) === 0 ? (
          <p class="fine">
            <Mark state="cleared" /> {jobs.length ? "Nothing is wrong that C4 knows of." : "No job has a master here."}
          </p>
        ) : (
          <ul class="verdicts">
            {fleet.open?.map((page) => (
              <VerdictLine key={`${page.jobId} ${page.verdict?.id}`} page={page} job={byId.get(page.jobId)?.job ?? page.jobId ?? ""} until={ms(byId.get(page.jobId)?.shownUnixNs)} />
            ))}
          </ul>
        )}
        {(fleet.openLeftOut ?? 0) > 0 && <p class="dim">and {fleet.openLeftOut} more: see each job</p>}
      </section>
      <section>
        <h2>Jobs</h2>
        <Table caption="jobs" columns={columns} rows={jobs} keyOf={(job) => job.id ?? ""} empty="No job has a master here, and none of before kept logs." />
      </section>
      <section>
        <h2>Named more than once</h2>
        <Table caption="repeat offenders" columns={offenders} rows={fleet.offenders ?? []} keyOf={(item) => `${item.kind} ${item.name}`} empty="No node, NIC or cable has more than one confirmed verdict." />
      </section>
    </>
  );
}
