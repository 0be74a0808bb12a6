// One job: what is wrong, its iterations, its latencies, its ranks, its history.
import { useLive, useAsk } from "../live";
import { ms } from "../format";
import { changeSet, linkTo, type Route } from "../route";
import { Moment, Name, Since, Time } from "../parts/time";
import { stateOfJob } from "./fleet";
import { Mark } from "../parts/verdict";
import { WrongPart } from "./job_wrong";
import { IterationsPart } from "./job_iterations";
import { LatencyPart } from "./job_latency";
import { RanksPart } from "./job_ranks";
import { HistoryPart } from "./job_history";
import type { PageVerdicts } from "../messages";

const PARTS = [
  { name: "wrong", title: "What is wrong" },
  { name: "iterations", title: "Iterations" },
  { name: "latency", title: "Latency" },
  { name: "ranks", title: "Ranks" },
  { name: "history", title: "History" },
];

export function JobView({ route }: { route: Route }) {
  const { fleet } = useLive();
  const job = fleet?.jobs?.find((item) => item.id === route.id);
  const at = route.set.get("at") ?? "";
  const set = { job: route.id, ...(at ? { at } : {}) };
  const verdicts = useAsk<PageVerdicts>("verdicts", { ...set, cleared: "true" }, 5000, job?.revision ?? "");
  const part = route.set.get("part") ?? "wrong";
  if (!fleet) return <p class="wait">The masters are being asked.</p>;
  if (!job) {
    return (
      <>
        <h1><Name text={route.id} /></h1>
        <p class="notice bad">
          There is no such job here (any more). <a href={linkTo("fleet")}>All jobs</a>
        </p>
      </>
    );
  }
  const { word, mark } = stateOfJob(job);
  const recorded = job.state === "PAGE_JOB_STATE_RECORDED";
  const moment = recorded ? ms(at) || ms(job.shownUnixNs) : ms(job.endedUnixNs);
  return (
    <Moment.Provider value={moment}>
      <h1 class="jobhead">
        <Mark state={mark} /> <Name text={job.job} /> <span class="dim">{word}</span>
      </h1>
      <p class="dim">
        {job.ranks ?? 0} ranks on {job.hosts ?? "?"} nodes, master on <Name text={job.host} />, began <Time at={ms(job.beganUnixNs)} /> (<Since at={ms(job.beganUnixNs)} until={ms(job.endedUnixNs)} />
        {ms(job.endedUnixNs) ? " until it ended" : " ago"}){job.why ? <>; <bdi>{job.why}</bdi></> : null}
      </p>
      {job.trouble && <p class="notice bad"><bdi>{job.trouble}</bdi></p>}
      {recorded && <Scrubber route={route} from={ms(job.fromUnixNs)} to={ms(job.toUnixNs)} at={moment} />}
      <nav class="tabs" aria-label="parts of the job">
        {PARTS.map(({ name, title }) => (
          <a
            key={name}
            href={linkTo("job", route.id, { part: name === "wrong" ? "" : name, at })}
            aria-current={part === name ? "page" : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      {part === "iterations" ? (
        <IterationsPart set={set} />
      ) : part === "latency" ? (
        <LatencyPart set={set} route={route} ranks={job.ranks ?? 0} />
      ) : part === "ranks" ? (
        <RanksPart set={set} route={route} />
      ) : part === "history" ? (
        <HistoryPart set={set} verdicts={verdicts} />
      ) : (
        <WrongPart set={set} route={route} verdicts={verdicts} />
      )}
    </Moment.Provider>
  );
}

// Of a recording: the moment that is shown.
function Scrubber({ route, from, to, at }: { route: Route; from: number; to: number; at: number }) {
  return (
    <p class="scrubber">
      <label for="moment">Moment of the recording</label>
      <input
        id="moment"
        type="range"
        min={0}
        max={Math.round(to - from)}
        step={100}
        value={Math.round(at - from)}
        onInput={(event) => {
          const moment = from + Number(event.currentTarget.value);
          changeSet(route, { at: `${Math.round(moment)}000000` }, false);
        }}
      />
      <output for="moment">
        <Time at={at} date />, {((at - from) / 1000).toFixed(1)} s of {((to - from) / 1000).toFixed(1)} s
      </output>
    </p>
  );
}
