// One job: what is wrong, its iterations, its latencies, its ranks, its history.
import { useMemo, useState } from "preact/hooks";
import { openPast, useLive, useAsk } from "../live";
import { ms, syndrome } from "../format";
import { changeSet, linkTo, type Route } from "../route";
import { Moment, Name, Since, Time } from "../parts/time";
import { stateOfJob } from "./fleet";
import { Mark } from "../parts/verdict";
import { WrongPart } from "./job_wrong";
import { IterationsPart } from "./job_iterations";
import { LatencyPart } from "./job_latency";
import { RanksPart } from "./job_ranks";
import { StragglersPart } from "./job_stragglers";
import { TimelinePart } from "./job_timeline";
import { HistoryPart } from "./job_history";
import type { PageVerdicts } from "../messages";

const PARTS = [
  { name: "wrong", title: "What is wrong" },
  { name: "iterations", title: "Iterations" },
  { name: "latency", title: "Latency" },
  { name: "ranks", title: "Ranks" },
  { name: "timeline", title: "Timeline" },
  { name: "stragglers", title: "Stragglers" },
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
      {recorded && <Scrubber route={route} from={ms(job.fromUnixNs)} to={ms(job.toUnixNs)} toNs={job.toUnixNs ?? ""} at={moment} />}
      {!recorded && Number(fleet.mostRecordingBytes ?? 0) > 0 && <PastButton id={route.id} part={part} />}
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
        <LatencyPart set={set} route={route} ranks={job.ranks ?? 0} recorded={recorded ? { from: ms(job.fromUnixNs), to: ms(job.toUnixNs) } : null} />
      ) : part === "ranks" ? (
        <RanksPart set={set} route={route} />
      ) : part === "timeline" ? (
        <TimelinePart key={route.id} set={set} route={route} job={job} verdicts={verdicts.data} />
      ) : part === "stragglers" ? (
        <StragglersPart key={route.id} set={set} route={route} recorded={recorded} />
      ) : part === "history" ? (
        <HistoryPart set={set} verdicts={verdicts} />
      ) : (
        <WrongPart set={set} route={route} verdicts={verdicts} />
      )}
    </Moment.Provider>
  );
}

// The last minutes of a job that is not a recording: its matrix, ranks and verdicts as they were at any moment.
function PastButton({ id, part }: { id: string; part: string }) {
  const [word, setWord] = useState("");
  const open = async () => {
    setWord("They are being read.");
    try {
      const past = await openPast(id);
      setWord("");
      location.hash = linkTo("job", past, { part: part === "wrong" ? "" : part });
    } catch (fault) {
      setWord(fault instanceof Error ? fault.message : String(fault));
    }
  };
  return (
    <p class="controls">
      <button type="button" class="quiet" onClick={() => void open()}>go through the last minutes</button>
      <span class="dim" aria-live="polite"><bdi>{word}</bdi></span>
    </p>
  );
}

// A recording is looked at in so many moments at least.
const LOOKS = 60;

// When verdicts came, were confirmed and went, each with the moment from which it can be seen.
function changesOf(verdicts: PageVerdicts | null, from: number, to: number): { at: number; what: string }[] {
  const behind = Math.max(500, (to - from) / LOOKS);
  const changes: { at: number; what: string }[] = [];
  for (const { verdict } of verdicts?.verdicts ?? []) {
    const named = `${verdict?.id ?? ""}: ${syndrome(verdict ?? {})}`;
    const add = (ns: string | undefined, what: string) => {
      if (ms(ns) > 0) changes.push({ at: Math.min(ms(ns) + behind, to), what: `${named} ${what}` });
    };
    add(verdict?.confirmedUnixNs, "confirmed");
    add(verdict?.clearedUnixNs, "over");
  }
  return changes.sort((a, b) => a.at - b.at);
}

// Of a recording: the moment that is shown.
function Scrubber({ route, from, to, toNs, at }: { route: Route; from: number; to: number; toNs: string; at: number }) {
  const all = useAsk<PageVerdicts>("verdicts", { job: route.id, cleared: "true", at: toNs }, 0);
  const changes = useMemo(() => changesOf(all.data, from, to), [all.data, from, to]);
  const go = (moment: number) => changeSet(route, { at: `${Math.round(moment)}000000` }, false);
  const before = changes.filter((change) => change.at < at - 1).pop();
  const after = changes.find((change) => change.at > at + 1);
  return (
    <div class="scrubber">
      <label for="moment">Moment of the recording</label>
      <input
        id="moment"
        type="range"
        min={0}
        max={Math.round(to - from)}
        step={100}
        value={Math.round(at - from)}
        list="changes"
        onInput={(event) => go(from + Number(event.currentTarget.value))}
      />
      <datalist id="changes">{changes.map((change) => <option key={`${change.at} ${change.what}`} value={Math.round(change.at - from)} />)}</datalist>
      <output for="moment">
        <Time at={at} date />, {((at - from) / 1000).toFixed(1)} s of {((to - from) / 1000).toFixed(1)} s
      </output>
      <span class="controls">
        <button type="button" class="quiet" disabled={!before} title={before?.what} onClick={() => before && go(before.at)}>previous change</button>
        <button type="button" class="quiet" disabled={!after} title={after?.what} onClick={() => after && go(after.at)}>next change</button>
        <span class="dim">The address of the page keeps the moment: it can be sent as a link.</span>
      </span>
    </div>
  );
}
