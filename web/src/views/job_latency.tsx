import { useMemo } from "preact/hooks";
import type { GetMatrixReply, MatrixCell, PageMatrix, RankTime } from "../messages";
import { communicator, ms, seconds } from "../format";
import { useAsk } from "../live";
import { changeSet, type Route } from "../route";
import { Fault } from "../parts/fault";
import { Matrix, placesOf } from "../parts/matrix";
import { Table, type Column } from "../parts/table";
import { Name, Time } from "../parts/time";

const MANY_RANKS = 64; // beyond, nodes are shown first

interface CellRow {
  at: number;
  from: string;
  to: string;
  ratio: number;
  latency: number;
  slow: boolean;
}

const slowest = (link: (row: CellRow) => () => void): Column<CellRow>[] => [
  { head: "source", value: (row) => row.from, show: (row) => <button type="button" class="cell" onClick={link(row)}><Name text={row.from} /></button> },
  { head: "destination", value: (row) => row.to, show: (row) => <Name text={row.to} /> },
  { head: "times usual", value: (row) => row.ratio, number: true, show: (row) => (row.ratio ? row.ratio.toFixed(2) : "") },
  { head: "µs per KiB", value: (row) => row.latency, number: true, show: (row) => row.latency.toFixed(2) },
  { head: "slow", value: (row) => (row.slow ? "slow" : "") },
];

const pairs: Column<MatrixCell>[] = [
  { head: "from", value: (cell) => `rank ${cell.fromRank ?? 0}, ${cell.fromNic ?? ""}` },
  { head: "to", value: (cell) => `rank ${cell.toRank ?? 0}, ${cell.toNic ?? ""}` },
  { head: "communicator", value: (cell) => communicator(cell.communicatorId) },
  { head: "channel", value: (cell) => cell.channel ?? 0, number: true },
  { head: "queue pair", value: (cell) => cell.index ?? 0, number: true },
  { head: "µs per KiB", value: (cell) => (cell.medianNsPerKib ?? 0) / 1e3, number: true, show: (cell) => ((cell.medianNsPerKib ?? 0) / 1e3).toFixed(2) },
  { head: "usual", value: (cell) => (cell.usualNsPerKib ?? 0) / 1e3, number: true, show: (cell) => (cell.usualNsPerKib ? (cell.usualNsPerKib / 1e3).toFixed(2) : "not known") },
  { head: "times usual", value: (cell) => cell.ratio ?? 0, number: true, show: (cell) => (cell.ratio ?? 0).toFixed(2) },
  { head: "chunks", value: (cell) => Number(cell.chunks ?? 0), number: true },
  { head: "slow", value: (cell) => (cell.slow ? "slow" : "") },
];

const own: Column<RankTime>[] = [
  { head: "rank", value: (item) => item.rank ?? 0, number: true },
  { head: "node", value: (item) => item.host ?? "", show: (item) => <Name text={item.host} /> },
  { head: "own time (s)", value: (item) => (item.ownNs ?? 0) / 1e9, number: true, show: (item) => seconds((item.ownNs ?? 0) / 1e9) },
  { head: "usual (s)", value: (item) => (item.usualOwnNs ?? 0) / 1e9, number: true, show: (item) => (item.usualOwnNs ? seconds(item.usualOwnNs / 1e9) : "") },
  { head: "each operation (s)", value: (item) => (item.cycleNs ?? 0) / 1e9, number: true, show: (item) => seconds((item.cycleNs ?? 0) / 1e9) },
  { head: "waited for the receiver (s)", value: (item) => (item.firstWaitNs ?? 0) / 1e9, number: true, show: (item) => seconds((item.firstWaitNs ?? 0) / 1e9) },
];

function rowsOf(matrix: PageMatrix): CellRow[] {
  const names = matrix.names ?? [];
  return (matrix.from ?? []).map((from, at) => ({
    at,
    from: names[from] ?? "",
    to: names[matrix.to?.[at] ?? 0] ?? "",
    ratio: matrix.ratio?.[at] ?? 0,
    latency: matrix.usPerKib?.[at] ?? 0,
    slow: matrix.slow?.[at] ?? false,
  }));
}

export function LatencyPart({ set, route, ranks }: { set: Record<string, string>; route: Route; ranks: number }) {
  const by = route.set.get("by") ?? (ranks > MANY_RANKS ? "node" : "rank");
  const measure = route.set.get("measure") === "latency" ? "latency" : "ratio";
  const asked = useAsk<PageMatrix>("matrix", { ...set, by }, 5000);
  const source = route.set.get("source") ?? "";
  const destination = route.set.get("destination") ?? "";
  const matrix = asked.data;
  const rows = useMemo(() => (matrix ? rowsOf(matrix).sort((a, b) => b.ratio - a.ratio) : []), [matrix]);
  const filled = useMemo(() => (matrix ? placesOf(matrix) : new Map<number, number>()), [matrix]);
  const names = matrix?.names ?? [];
  const row = names.indexOf(source);
  const column = names.indexOf(destination);
  const hasCell = row >= 0 && column >= 0 && filled.has(row * names.length + column);
  const cell = useAsk<GetMatrixReply>(hasCell ? "cell" : "", { ...set, by, source, destination }, 5000);
  const choose = (from: string, to: string) => changeSet(route, { source: from, destination: to }, false);
  return (
    <>
      <Fault asked={asked} />
      <div class="controls">
        <fieldset>
          <legend>by</legend>
          {["rank", "node", "nic"].map((name) => (
            <label key={name}>
              <input type="radio" name="by" checked={by === name} onChange={() => changeSet(route, { by: name, source: "", destination: "" })} />
              {name === "nic" ? "NIC" : name}
            </label>
          ))}
        </fieldset>
        <fieldset>
          <legend>colour</legend>
          <label>
            <input type="radio" name="measure" checked={measure === "ratio"} onChange={() => changeSet(route, { measure: "" })} />
            times usual
          </label>
          <label>
            <input type="radio" name="measure" checked={measure === "latency"} onChange={() => changeSet(route, { measure: "latency" })} />
            µs per KiB
          </label>
        </fieldset>
        {matrix && <span class="dim">of <Time at={ms(matrix.unixNs)} /></span>}
      </div>
      {!matrix && !asked.error && <p class="wait">The master is being asked.</p>}
      {matrix && names.length === 0 && <p class="dim">No queue pair has moved anything in the last seconds that was measured.</p>}
      {matrix && names.length > 0 && (
        <Matrix
          matrix={matrix}
          measure={measure}
          chosen={row >= 0 && column >= 0 ? { row, column } : null}
          onChoose={(place) => choose(names[place.row], names[place.column])}
        />
      )}
      {matrix && Number(matrix.cellsLeftOut ?? 0) > 0 && <p class="dim">{matrix.cellsLeftOut} queue pairs are left out; those that are slowest for what is usual are here.</p>}
      {row >= 0 && column >= 0 && (
        <section>
          <h2>
            Queue pairs of <Name text={source} /> → <Name text={destination} />
          </h2>
          <Fault asked={cell} />
          <Table caption="queue pairs of the cell" columns={pairs} rows={cell.data?.cells ?? []} keyOf={(item, place) => `${item.communicatorId} ${item.channel} ${item.index} ${place}`} empty={hasCell ? "" : "No queue pair joins these two."} />
        </section>
      )}
      {rows.length > 0 && (
        <>
          <h2>Slowest cells</h2>
          <Table caption="cells of the latency matrix" columns={slowest((item) => () => choose(item.from, item.to))} rows={rows} keyOf={(item) => String(item.at)} most={10} />
          <h2>Own times of ranks</h2>
          <Table caption="own times of ranks" columns={own} rows={matrix?.ranks ?? []} keyOf={(item) => String(item.rank ?? 0)} most={16} />
        </>
      )}
    </>
  );
}
