// What a cell's queue pairs took over time: of a recording in moments spread over it, of a running job since the cell
// was opened. The slowest of them, each a line, and dots where the master held one to be slow.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { GetMatrixReply, MatrixCell } from "../messages";
import { clock, ms } from "../format";
import { ask } from "../live";
import { useSettings } from "../settings";
import { SaveSvg } from "./picture";

const MOMENTS = 24; // of a recording
const MOST_MOMENTS = 120; // of a running job
const MOST_LINES = 12;
const WIDTH = 720;
const HEIGHT = 180;
const LEFT = 62;
const BOTTOM = 22;
const TOP = 8;

interface Props {
  set: Record<string, string>; // of the cell: job, by, source, destination
  newest: GetMatrixReply | null;
  recorded: { from: number; to: number } | null; // ms
}

interface Dot {
  at: number; // ms
  latency: number; // µs per KiB
  slow: boolean;
}

const nameOf = (cell: MatrixCell) => `rank ${cell.fromRank ?? 0} to rank ${cell.toRank ?? 0}, channel ${cell.channel ?? 0}, queue pair ${cell.index ?? 0}`;

// Replies by their moments; those of a recording are asked for one after the other.
function useReplies({ set, newest, recorded }: Props): GetMatrixReply[] {
  const cell = JSON.stringify([set.job, set.by, set.source, set.destination]);
  const [replies, setReplies] = useState<{ cell: string; all: GetMatrixReply[] }>({ cell, all: [] });
  const from = recorded?.from ?? 0;
  const to = recorded?.to ?? 0;
  useEffect(() => {
    if (to <= from) return;
    const abort = new AbortController();
    const go = async () => {
      for (let moment = 1; moment <= MOMENTS && !abort.signal.aborted; ++moment) {
        const at = `${Math.round(from + ((to - from) * moment) / MOMENTS)}000000`;
        const reply = await ask<GetMatrixReply>("cell", { ...set, at }, abort.signal).catch(() => null);
        if (abort.signal.aborted || !reply) continue;
        setReplies((before) => ({ cell, all: [...(before.cell === cell ? before.all : []), reply] }));
      }
    };
    void go();
    return () => abort.abort();
  }, [cell, from, to]);
  useEffect(() => {
    if (to > from || !newest) return;
    setReplies((before) => {
      const all = before.cell === cell ? before.all : [];
      if (all[all.length - 1]?.unixNs === newest.unixNs) return before;
      return { cell, all: [...all, newest].slice(-MOST_MOMENTS) };
    });
  }, [cell, from, to, newest?.unixNs]);
  return replies.cell === cell ? replies.all : [];
}

function linesOf(replies: GetMatrixReply[]): [string, Dot[]][] {
  const lines = new Map<string, Dot[]>();
  const seen = new Set<string>();
  for (const reply of replies) {
    if (!reply.unixNs || seen.has(reply.unixNs)) continue;
    seen.add(reply.unixNs);
    for (const cell of reply.cells ?? []) {
      const latency = (cell.medianNsPerKib ?? 0) / 1e3;
      if (latency <= 0) continue;
      const line = lines.get(nameOf(cell)) ?? [];
      line.push({ at: ms(reply.unixNs), latency, slow: cell.slow ?? false });
      lines.set(nameOf(cell), line);
    }
  }
  const worst = (dots: Dot[]) => Math.max(...dots.map((dot) => dot.latency));
  return [...lines].sort(([, a], [, b]) => worst(b) - worst(a));
}

export function CellHistory(props: Props) {
  const drawing = useRef<SVGSVGElement>(null);
  const { utc } = useSettings();
  const replies = useReplies(props);
  const lines = useMemo(() => linesOf(replies), [replies]);
  const shown = lines.slice(0, MOST_LINES);
  const moments = [...new Set(shown.flatMap(([, dots]) => dots.map((dot) => dot.at)))].sort((a, b) => a - b);
  if (moments.length < 2) return <p class="dim">{props.recorded ? "The history is being read, or nothing was measured." : "The history begins now, and is drawn from the second window on."}</p>;
  const first = moments[0];
  const last = moments[moments.length - 1];
  const most = Math.max(...shown.flatMap(([, dots]) => dots.map((dot) => dot.latency)));
  const x = (at: number) => LEFT + ((at - first) / (last - first)) * (WIDTH - LEFT - 8);
  const y = (latency: number) => TOP + (1 - latency / most) * (HEIGHT - TOP - BOTTOM);
  const slow = shown.filter(([, dots]) => dots.some((dot) => dot.slow)).length;
  return (
    <figure class="history">
      <svg
        ref={drawing}
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`latencies of ${shown.length} queue pairs from ${clock(first, utc)} to ${clock(last, utc)}: ${most.toFixed(2)} µs per KiB at most, ${slow} slow at some time`}
      >
        <line class="axis" x1={LEFT} y1={HEIGHT - BOTTOM} x2={WIDTH - 8} y2={HEIGHT - BOTTOM} />
        {[0, most / 2, most].map((latency) => (
          <text key={latency} x={LEFT - 6} y={y(latency) + 4} text-anchor="end">{latency.toFixed(2)}</text>
        ))}
        <text x={LEFT} y={HEIGHT - 6}>{clock(first, utc)}</text>
        <text x={WIDTH - 8} y={HEIGHT - 6} text-anchor="end">{clock(last, utc)}</text>
        {shown.map(([name, dots]) => (
          <g key={name}>
            <title>{name}</title>
            <polyline class={dots.some((dot) => dot.slow) ? "line slow" : "line"} points={dots.map((dot) => `${x(dot.at).toFixed(1)},${y(dot.latency).toFixed(1)}`).join(" ")} />
            {dots.filter((dot) => dot.slow).map((dot) => (
              <circle key={dot.at} class="slow" cx={x(dot.at)} cy={y(dot.latency)} r={3} />
            ))}
          </g>
        ))}
      </svg>
      <figcaption class="dim">
        µs per KiB (median of a window) over time; dots: held to be slow then.
        {lines.length > shown.length ? ` The ${shown.length} slowest of ${lines.length} queue pairs.` : ""}
      </figcaption>
      <SaveSvg of={drawing} name="history of a cell" />
    </figure>
  );
}
