import type { GetIterationsReply, RankIterationsStatus, SeriesChange } from "../messages";
import { ms, seconds } from "../format";
import { useAsk } from "../live";
import { Fault } from "../parts/fault";
import { Series } from "../parts/series";
import { Table, type Column } from "../parts/table";
import { Name, Time } from "../parts/time";

const changes: Column<SeriesChange>[] = [
  { head: "at", value: (item) => ms(item.atUnixNs), show: (item) => <Time at={ms(item.atUnixNs)} /> },
  { head: "iteration", value: (item) => Number(item.iteration ?? 0), number: true },
  { head: "before (s)", value: (item) => item.beforeS ?? 0, number: true, show: (item) => seconds(item.beforeS ?? 0) },
  { head: "after (s)", value: (item) => item.afterS ?? 0, number: true, show: (item) => seconds(item.afterS ?? 0) },
  { head: "times", value: (item) => (item.afterS ?? 0) / (item.beforeS || 1), number: true, show: (item) => ((item.afterS ?? 0) / (item.beforeS || 1)).toFixed(2) },
  { head: "told by ranks", value: (item) => item.ranks ?? 0, number: true },
  { head: "sure", value: (item) => `${item.confirmed ? "confirmed" : "suspected"}${item.jobWide ? ", most ranks" : ""}${item.creeping ? ", by and by" : ""}` },
];

const ranks: Column<RankIterationsStatus>[] = [
  { head: "rank", value: (item) => item.rank ?? 0, number: true },
  { head: "node", value: (item) => item.host ?? "", show: (item) => <Name text={item.host} /> },
  { head: "iterations", value: (item) => Number(item.iterations ?? 0), number: true },
  { head: "newest (s)", value: (item) => item.newestS ?? 0, number: true, show: (item) => seconds(item.newestS ?? 0) },
  { head: "calls of one", value: (item) => item.calls ?? 0, number: true },
  { head: "marked (s)", value: (item) => item.markedNewestS ?? 0, number: true, show: (item) => (item.markedNewestS ? seconds(item.markedNewestS) : "") },
];

export function IterationsPart({ set }: { set: Record<string, string> }) {
  const asked = useAsk<GetIterationsReply>("iterations", set, 2000);
  if (!asked.data) return asked.error ? <Fault asked={asked} /> : <p class="wait">The master is being asked.</p>;
  const reply = asked.data;
  const count = reply.iterations?.length ?? 0;
  return (
    <>
      <Fault asked={asked} />
      <h2>Iteration time{count > 0 ? <span class="dim"> of rank {reply.rank ?? 0}, by its calls</span> : null}</h2>
      {count === 0 ? (
        <p class="dim">No iteration is known yet: it takes some that repeat the same calls.</p>
      ) : (
        <Series reply={reply} />
      )}
      <h2>Changes</h2>
      <Table caption="changes of the iteration time" columns={changes} rows={reply.changes ?? []} keyOf={(item, place) => `${item.atUnixNs} ${place}`} empty="Its time has not changed." />
      <h2>By rank</h2>
      <Table caption="iterations by rank" columns={ranks} rows={reply.ranks ?? []} keyOf={(item) => String(item.rank ?? 0)} most={16} empty="No rank has told of iterations." />
    </>
  );
}
