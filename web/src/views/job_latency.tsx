import { useMemo } from "preact/hooks";
import type { GetMatrixReply, MatrixCell, PageMatrix, RankTime } from "../messages";
import { communicator, ms, ranksText, seconds } from "../format";
import { useAsk } from "../live";
import { changeSet, type Route } from "../route";
import { CellHistory } from "../parts/cell_history";
import { Fault } from "../parts/fault";
import { Matrix } from "../parts/matrix";
import { placesOf, type Region, regionBetween } from "../parts/matrix_cells";
import { Table, type Column } from "../parts/table";
import { Name, Time } from "../parts/time";

const MANY_RANKS = 64; // beyond, nodes are shown first
const MOST_RANKS = 2048; // beyond, ranks are shown of a region only
const MOST_MISSING = 2048; // ranks without a row that are looked for

const NO_REGION = { top: "", bottom: "", left: "", right: "" };

// "rank 8" to "rank 15": "8-15"
const rangeOf = (first: string, last: string) => `${first.replace("rank ", "")}-${last.replace("rank ", "")}`;

// The ranks of those nodes, as the ends of a region by rank; null: they are not known.
function ranksOf(matrix: PageMatrix, first: number, last: number): [string, string] | null {
  const hosts = new Set((matrix.names ?? []).slice(first, last + 1));
  let low = Infinity;
  let high = -Infinity;
  for (const { rank = 0, host = "" } of matrix.ranks ?? []) {
    if (!hosts.has(host)) continue;
    low = Math.min(low, rank);
    high = Math.max(high, rank);
  }
  return high >= low ? [`rank ${low}`, `rank ${high}`] : null;
}

// Ranks of the job that nothing was measured of.
function missingIn(names: string[], ranks: number): number[] {
  const there = new Set(names);
  return Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => !there.has(`rank ${rank}`));
}

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

export function LatencyPart({ set, route, ranks, recorded }: { set: Record<string, string>; route: Route; ranks: number; recorded: { from: number; to: number } | null }) {
  const by = route.set.get("by") ?? (ranks > MANY_RANKS ? "node" : "rank");
  const measure = route.set.get("measure") === "latency" ? "latency" : "ratio";
  const ends = {
    top: route.set.get("top") ?? "", bottom: route.set.get("bottom") ?? "", left: route.set.get("left") ?? "", right: route.set.get("right") ?? "",
  };
  const isRegion = ends.top !== "";
  const tooMany = by !== "node" && ranks > MOST_RANKS && !isRegion;
  const only: Record<string, string> = by === "rank" && ranks > MANY_RANKS && isRegion ? { ranks: `${rangeOf(ends.top, ends.bottom)},${rangeOf(ends.left, ends.right)}` } : {};
  const asked = useAsk<PageMatrix>(tooMany ? "" : "matrix", { ...set, by, ...only }, 5000);
  const source = route.set.get("source") ?? "";
  const destination = route.set.get("destination") ?? "";
  const matrix = asked.data;
  const rows = useMemo(() => (matrix ? rowsOf(matrix).sort((a, b) => b.ratio - a.ratio) : []), [matrix]);
  const filled = useMemo(() => (matrix ? placesOf(matrix) : new Map<number, number>()), [matrix]);
  const names = matrix?.names ?? [];
  const region = isRegion ? regionBetween(names, ends) : null;
  const missing = by === "rank" && !isRegion && names.length > 0 && ranks <= MOST_MISSING ? missingIn(names, ranks) : [];
  const zoom = (to: Region | null) =>
    changeSet(route, to ? { top: names[to.top], bottom: names[to.bottom], left: names[to.left], right: names[to.right] } : NO_REGION);
  const openRanks = (of: Region) => {
    const from = matrix && ranksOf(matrix, of.top, of.bottom);
    const to = matrix && ranksOf(matrix, of.left, of.right);
    if (from && to) changeSet(route, { by: "rank", top: from[0], bottom: from[1], left: to[0], right: to[1], source: "", destination: "" });
  };
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
              <input type="radio" name="by" checked={by === name} onChange={() => changeSet(route, { by: name, source: "", destination: "", ...NO_REGION })} />
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
      {tooMany && <p class="notice">{ranks} ranks are too many for one picture: mark a region of nodes, and open its ranks beneath it.</p>}
      {!tooMany && !matrix && !asked.error && <p class="wait">The master is being asked.</p>}
      {matrix && names.length === 0 && <p class="dim">No queue pair has moved anything in the last seconds that was measured.</p>}
      {matrix && names.length > 0 && (region || !isRegion) && (
        <Matrix
          matrix={matrix}
          measure={measure}
          region={region}
          onRegion={zoom}
          chosen={row >= 0 && column >= 0 ? { row, column } : null}
          onChoose={(place) => choose(names[place.row], names[place.column])}
        />
      )}
      {by === "node" && region && matrix && ranksOf(matrix, region.top, region.bottom) && ranksOf(matrix, region.left, region.right) && (
        <p class="controls">
          <button type="button" onClick={() => openRanks(region)}>show the ranks of this region</button>
        </p>
      )}
      {matrix && isRegion && !region && (
        <p class="notice">
          Nothing was measured in the region <Name text={ends.top} /> to <Name text={ends.bottom} /> → <Name text={ends.left} /> to <Name text={ends.right} />.{" "}
          <button type="button" class="quiet" onClick={() => zoom(null)}>show the whole matrix</button>
        </p>
      )}
      {missing.length > 0 && <p class="dim">Nothing was measured of {ranksText(missing)}: whether they are slow is not known.</p>}
      {matrix && Number(matrix.cellsLeftOut ?? 0) > 0 && <p class="dim">{matrix.cellsLeftOut} queue pairs are left out; those that are slowest for what is usual are here.</p>}
      {row >= 0 && column >= 0 && (
        <section>
          <h2>
            Queue pairs of <Name text={source} /> → <Name text={destination} />
          </h2>
          <Fault asked={cell} />
          {hasCell && <CellHistory set={{ job: set.job, by, source, destination }} newest={cell.data} recorded={recorded} />}
          <Table caption="queue pairs of the cell" columns={pairs} rows={cell.data?.cells ?? []} keyOf={(item, place) => `${item.communicatorId} ${item.channel} ${item.index} ${place}`} empty={hasCell ? "" : "No queue pair of these two was measured."} />
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
