// What each rank did around a moment: operations by communicator, what the program marks, processes that cannot run, verdicts.
import { useMemo, useRef, useState } from "preact/hooks";
import type { PageJob, PageTimeline, PageVerdicts } from "../messages";
import { ms, seconds } from "../format";
import { useAsk } from "../live";
import { changeSet, type Route } from "../route";
import { Fault } from "../parts/fault";
import { Table, type Column } from "../parts/table";
import { Name, Time } from "../parts/time";
import { linesOf, titleOf, TimelineDrawing, type Lines, type Span } from "../parts/timeline";

const MANY_RANKS = 64;
const FEW_RANKS = 16;
const LEAST_MS = 1;

const ns = (at: number) => `${Math.round(at * 1000)}000`;

// Of many ranks those that are worth a look first: whom the verdicts name, and some that wait for them.
function firstRanks(job: PageJob, verdicts: PageVerdicts | null): string {
  if ((job.ranks ?? 0) <= MANY_RANKS) return "";
  const ranks = new Set<number>();
  for (const { verdict } of verdicts?.verdicts ?? []) {
    if (verdict?.culprit?.kind === "CULPRIT_KIND_RANK") ranks.add(verdict.culprit.rank ?? 0);
    for (const waiting of verdict?.waiting ?? []) {
      if (ranks.size < FEW_RANKS) ranks.add(waiting);
    }
  }
  for (let rank = 0; ranks.size < FEW_RANKS; ++rank) ranks.add(rank);
  return [...ranks].sort((a, b) => a - b).join(",");
}

interface InHand {
  title: string;
  host: string;
  rank: number;
  what: string;
  number: number;
  sinceMs: number;
  waitsFor: number;
}

function inHandAt(lines: Lines, at: number): InHand[] {
  return lines.rows.flatMap((row, place) => {
    const span: Span | undefined = lines.spans[place].filter((one) => one.from <= at && one.to >= at).pop();
    if (!span && row.kind !== "PAGE_ROW_KIND_OPERATIONS") return [];
    return [{
      title: titleOf(row), host: row.host ?? "", rank: row.rank ?? -1, what: span?.name ?? "", number: span?.number ?? -1,
      sinceMs: span ? at - span.from : -1, waitsFor: span?.waitsFor ?? -1,
    }];
  });
}

const COLUMNS: Column<InHand>[] = [
  { head: "rank", value: (row) => row.rank, number: true, show: (row) => (row.rank >= 0 ? row.rank : "") },
  { head: "node", value: (row) => row.host, show: (row) => <Name text={row.host || " "} /> },
  { head: "of", value: (row) => row.title, show: (row) => <Name text={row.title} /> },
  { head: "in hand", value: (row) => row.what || "nothing", show: (row) => (row.what ? <Name text={row.what} /> : <span class="dim">nothing</span>) },
  { head: "number", value: (row) => row.number, number: true, show: (row) => (row.number >= 0 ? row.number : "") },
  { head: "for (ms)", value: (row) => row.sinceMs, number: true, show: (row) => (row.sinceMs >= 0 ? row.sinceMs.toFixed(1) : "") },
  { head: "waits for rank", value: (row) => row.waitsFor, number: true, show: (row) => (row.waitsFor >= 0 ? row.waitsFor : "") },
];

export function TimelinePart({ set, route, job, verdicts }: { set: Record<string, string>; route: Route; job: PageJob; verdicts: PageVerdicts | null }) {
  const [from, to] = [route.set.get("from") ?? "", route.set.get("to") ?? ""];
  const ranks = route.set.get("ranks") ?? firstRanks(job, verdicts);
  const live = job.state === "PAGE_JOB_STATE_RUNNING" && !to;
  const ready = (job.ranks ?? 0) <= MANY_RANKS || route.set.has("ranks") || verdicts !== null;
  const asked = useAsk<PageTimeline>(ready ? "timeline" : "", { ...set, from, to, ranks }, live ? 5000 : 0);
  const kept = useRef<PageTimeline | null>(null);
  if (asked.data) kept.current = asked.data;
  const timeline = kept.current;
  const lines = useMemo(() => (timeline ? linesOf(timeline) : null), [timeline]);
  const [typed, setTyped] = useState<string | null>(null);
  const blamed = useMemo(() => new Set((verdicts?.verdicts ?? []).flatMap(({ verdict }) =>
    verdict?.state !== "VERDICT_STATE_CLEARED" && verdict?.culprit?.kind === "CULPRIT_KIND_RANK" ? [verdict.culprit.rank ?? 0] : [])), [verdicts]);
  if (!timeline || !lines) return asked.error ? <Fault asked={asked} /> : <p class="wait">The recording is being read.</p>;
  const [began, ended] = [ms(timeline.beginUnixNs), ms(timeline.endUnixNs)];
  const origin = ms(timeline.fromUnixNs);
  // While another window is on its way the drawing shows it already, as far as is known.
  const window = { from: (ms(from) || origin) - origin, to: (ms(to) || ms(timeline.toUnixNs)) - origin };
  if (window.to - window.from < LEAST_MS) window.to = window.from + LEAST_MS;
  const at = ms(route.set.get("when") ?? "");
  const cursor = at ? at - origin : window.to;
  const go = (wanted: { from: number; to: number }) => {
    const length = Math.max(Math.min(wanted.to - wanted.from, ended - began), LEAST_MS);
    const first = Math.min(Math.max(origin + wanted.from, began), ended - length);
    changeSet(route, { from: ns(first), to: ns(first + length) }, false);
  };
  const part = (window.to - window.from) / 4;
  const rows = inHandAt(lines, cursor);
  return (
    <>
      <Fault asked={asked} />
      {timeline.fault && <p class="notice bad"><bdi>{timeline.fault}</bdi></p>}
      {Number(timeline.leftOut ?? 0) > 0 && (
        <p class="notice">{timeline.leftOut} short ones are not drawn: look closer, or at fewer ranks.</p>
      )}
      <p class="controls">
        <button type="button" class="quiet" onClick={() => go({ from: window.from - 2 * part, to: window.to - 2 * part })}>earlier</button>
        <button type="button" class="quiet" onClick={() => go({ from: window.from + 2 * part, to: window.to + 2 * part })}>later</button>
        <button type="button" class="quiet" onClick={() => go({ from: window.from + part, to: window.to - part })}>closer</button>
        <button type="button" class="quiet" onClick={() => go({ from: window.from - 2 * part, to: window.to + 2 * part })}>wider</button>
        <button type="button" class="quiet" onClick={() => go({ from: began - origin, to: ended - origin })}>all</button>
        <button type="button" class="quiet" disabled={!from && !to} onClick={() => changeSet(route, { from: "", to: "", when: "" }, false)}>newest</button>
        <span class="dim"><Time at={origin + window.from} date /> to <Time at={origin + window.to} />, {seconds((window.to - window.from) / 1000)}</span>
      </p>
      <form class="controls" onSubmit={(event) => { event.preventDefault(); changeSet(route, { ranks: (typed ?? ranks).replaceAll(" ", "") }); }}>
        <label for="ranks">Ranks</label>
        <input id="ranks" value={typed ?? ranks} placeholder="all; or 0-7,12" onInput={(event) => setTyped(event.currentTarget.value)} />
        <button type="submit" class="quiet">show these</button>
      </form>
      {lines.rows.length === 0 ? <p class="dim">Nothing is recorded of these ranks.</p> : (
        <TimelineDrawing timeline={timeline} lines={lines} window={window} blamed={blamed} cursor={cursor} onWindow={go}
          onCursor={(when) => changeSet(route, { when: ns(origin + when) }, false)} />
      )}
      <h2>In hand at <Time at={origin + cursor} /></h2>
      <Table caption="what each rank had in hand" columns={COLUMNS} rows={rows} keyOf={(row, place) => `${row.title} ${place}`} most={64} empty="Nothing." />
      <p class="dim">Where the job recorded at the level fine (<code>c4 record --fine</code>) each operation is there; elsewhere the newest one of each look.</p>
    </>
  );
}
