// Who waits for whom: the one that holds the others up in front, those who wait behind it, by node.
import { useRef } from "preact/hooks";
import type { PageVerdict, RankStatus } from "../messages";
import { ranksText, word } from "../format";
import { SaveSvg } from "./picture";

interface Group {
  host: string;
  ranks: number[];
}

function groupsOf(waiting: number[], ranks: RankStatus[]): Group[] {
  const hostOf = new Map(ranks.map((rank) => [rank.rank ?? 0, rank.process?.host ?? ""]));
  const groups = new Map<string, number[]>();
  for (const rank of waiting) {
    const host = hostOf.get(rank) ?? "node not known";
    groups.set(host, [...(groups.get(host) ?? []), rank]);
  }
  return [...groups].map(([host, of]) => ({ host, ranks: of.sort((a, b) => a - b) }));
}

const short = (text: string, most: number) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export function WaitGraph({ page, ranks }: { page: PageVerdict; ranks: RankStatus[] }) {
  const drawing = useRef<SVGSVGElement>(null);
  const verdict = page.verdict ?? {};
  const waiting = verdict.waiting ?? [];
  if (waiting.length === 0) return null;
  const all = groupsOf(waiting, ranks);
  const most = 16;
  const shown = all.length > most ? all.slice(0, most - 1) : all;
  const rest = all.slice(shown.length);
  const rows = shown.map((group) => ({ name: group.host, ranks: ranksText(group.ranks) }));
  if (rest.length > 0) {
    rows.push({
      name: `${rest.length} more nodes`,
      ranks: `${rest.reduce((sum, group) => sum + group.ranks.length, 0)} ranks`,
    });
  }
  const culprit = verdict.culprit ?? {};
  const root =
    culprit.kind === "CULPRIT_KIND_RANK"
      ? `rank ${culprit.rank ?? 0}`
      : culprit.kind === "CULPRIT_KIND_NODE"
        ? culprit.host ?? "a node"
        : culprit.cable || culprit.nic || (culprit.candidates?.length ? ranksText(culprit.candidates) : word(culprit.kind, "CULPRIT_KIND"));
  const detail = culprit.kind === "CULPRIT_KIND_RANK" ? culprit.host ?? "" : "";
  const state = word(culprit.state, "PROCESS_STATE");
  const rowHeight = 34;
  const height = Math.max(rows.length * rowHeight + 8, 84);
  const middle = height / 2;
  return (
    <figure>
    <svg
      ref={drawing}
      class="waits"
      viewBox={`0 0 640 ${height}`}
      role="img"
      aria-label={`${waiting.length} ranks on ${all.length} nodes wait for ${root}`}
    >
      <defs>
        <marker id="waits-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0 0 8 4 0 8z" class="tip" />
        </marker>
      </defs>
      {rows.map((row, place) => {
        const y = place * rowHeight + 4 + (height - 8 - rows.length * rowHeight) / 2 + rowHeight / 2;
        return (
          <g key={place}>
            <path d={`M400 ${y} C320 ${y} 300 ${middle} 226 ${middle}`} class="edge" marker-end="url(#waits-tip)" />
            <rect x="400" y={y - 14} width="236" height="28" rx="4" class="waiter" />
            <text x="408" y={y + 4}>
              {short(row.name, 14)}
              <tspan class="dim" dx="8">
                {short(row.ranks, 18)}
              </tspan>
              <title>{`${row.name}: ${row.ranks}`}</title>
            </text>
          </g>
        );
      })}
      <rect x="4" y={middle - 34} width="218" height="68" rx="6" class="root" />
      <text x="16" y={middle - 8} class="strong">
        {short(root, 24)}
        <title>{root}</title>
      </text>
      <text x="16" y={middle + 12} class="dim">
        {short([detail, state].filter(Boolean).join(", "), 30)}
      </text>
      <text x="310" y={14} class="dim" text-anchor="middle">
        wait for
      </text>
    </svg>
    <SaveSvg of={drawing} name="who waits for whom" />
    </figure>
  );
}
