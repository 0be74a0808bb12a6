// Where every rank stands. Of many ranks their nodes first; a node opens its ranks.
import { useMemo } from "preact/hooks";
import type { AgentStatus, GetStatusReply, RankStatus } from "../messages";
import { communicator, duration, ms, ranksText, word } from "../format";
import { useAsk } from "../live";
import { changeSet, type Route } from "../route";
import { Fault } from "../parts/fault";
import { Table, type Column } from "../parts/table";
import { Name } from "../parts/time";

const MANY_RANKS = 64;

interface NodeRow {
  host: string;
  ranks: number[];
  behind: number; // operations, of its rank that is farthest behind
  states: string;
}

const finished = (rank: RankStatus) => Number(rank.finished ?? 0);
const stateOfRank = (rank: RankStatus) => word(rank.health?.state, "PROCESS_STATE") || "not known";

// How far behind the others of its communicator.
function behindOf(ranks: RankStatus[]): Map<RankStatus, number> {
  const most = new Map<string, number>();
  for (const rank of ranks) {
    const key = rank.communicatorId ?? "";
    most.set(key, Math.max(most.get(key) ?? 0, Number(rank.called ?? 0)));
  }
  return new Map(ranks.map((rank) => [rank, (most.get(rank.communicatorId ?? "") ?? 0) - Number(rank.called ?? 0)]));
}

function rankColumns(behind: Map<RankStatus, number>): Column<RankStatus>[] {
  return [
    { head: "rank", value: (rank) => rank.rank ?? 0, number: true },
    { head: "node", value: (rank) => rank.process?.host ?? "", show: (rank) => <Name text={rank.process?.host} /> },
    { head: "pid", value: (rank) => rank.process?.pid ?? 0, number: true },
    { head: "process", value: stateOfRank, show: (rank) => <span class={`process ${stateOfRank(rank)}`}>{stateOfRank(rank)}</span> },
    { head: "sleeps in", value: (rank) => rank.health?.waitChannel ?? "", show: (rank) => <Name text={rank.health?.waitChannel || " "} /> },
    { head: "idle (s)", value: (rank) => ms(rank.health?.progressAgeNs) / 1000, number: true, show: (rank) => duration(ms(rank.health?.progressAgeNs)) },
    { head: "communicator", value: (rank) => communicator(rank.communicatorId) },
    { head: "called", value: (rank) => Number(rank.called ?? 0), number: true },
    { head: "started", value: (rank) => Number(rank.started ?? 0), number: true },
    { head: "finished", value: finished, number: true },
    { head: "behind", value: (rank) => behind.get(rank) ?? 0, number: true, show: (rank) => behind.get(rank) || "" },
  ];
}

const agents: Column<AgentStatus>[] = [
  { head: "node", value: (agent) => agent.host ?? "", show: (agent) => <Name text={agent.host} /> },
  { head: "heard (s ago)", value: (agent) => ms(agent.lastBatchAgeNs) / 1000, number: true, show: (agent) => duration(ms(agent.lastBatchAgeNs)) },
  { head: "batches", value: (agent) => Number(agent.batches ?? 0), number: true },
  { head: "dropped", value: (agent) => Number(agent.batchesDropped ?? 0), number: true },
  { head: "clock off by at most (ms)", value: (agent) => ms(agent.clockErrorNs), number: true, show: (agent) => (agent.clockErrorNs ? ms(agent.clockErrorNs).toFixed(2) : "") },
  { head: "version", value: (agent) => agent.version ?? "" },
  { head: "cannot read", value: (agent) => agent.refusal ?? "", show: (agent) => <Name text={agent.refusal || " "} /> },
];

function nodesOf(ranks: RankStatus[], behind: Map<RankStatus, number>): NodeRow[] {
  const nodes = new Map<string, NodeRow>();
  for (const rank of ranks) {
    const host = rank.process?.host ?? "";
    const node = nodes.get(host) ?? { host, ranks: [], behind: 0, states: "" };
    nodes.set(host, node);
    node.ranks.push(rank.rank ?? 0);
    node.behind = Math.max(node.behind, behind.get(rank) ?? 0);
    const state = stateOfRank(rank);
    if (!node.states.split(", ").includes(state)) node.states = node.states ? `${node.states}, ${state}` : state;
  }
  for (const node of nodes.values()) node.ranks.sort((a, b) => a - b);
  return [...nodes.values()];
}

export function RanksPart({ set, route }: { set: Record<string, string>; route: Route }) {
  const asked = useAsk<GetStatusReply>("status", set, 2000);
  const status = asked.data;
  const ranks = useMemo(() => status?.ranks ?? [], [status]);
  const behind = useMemo(() => behindOf(ranks), [ranks]);
  const nodes = useMemo(() => nodesOf(ranks, behind), [ranks, behind]);
  const many = ranks.length > MANY_RANKS;
  const node = route.set.get("node") ?? "";
  const nodeColumns: Column<NodeRow>[] = [
    { head: "node", value: (row) => row.host, show: (row) => <button type="button" class="cell" onClick={() => changeSet(route, { node: row.host === node ? "" : row.host })}><Name text={row.host} /></button> },
    { head: "ranks", value: (row) => ranksText(row.ranks) },
    { head: "processes", value: (row) => row.states },
    { head: "behind", value: (row) => row.behind, number: true, show: (row) => row.behind || "" },
  ];
  if (!status) return asked.error ? <Fault asked={asked} /> : <p class="wait">The master is being asked.</p>;
  return (
    <>
      <Fault asked={asked} />
      {status.policyFault && <p class="notice bad"><bdi>{status.policyFault}</bdi></p>}
      {status.limits?.map((limit) => <p class="notice" key={limit.name}><bdi>{limit.sentence}</bdi></p>)}
      {many && (
        <>
          <h2>Nodes</h2>
          <Table caption="nodes of the job" columns={nodeColumns} rows={nodes} keyOf={(row) => row.host} most={64} chosen={(row) => row.host === node} />
        </>
      )}
      {(!many || node) && (
        <>
          <h2>Ranks{node ? <> of <Name text={node} /></> : null}</h2>
          <Table
            caption="ranks of the job"
            columns={rankColumns(behind)}
            rows={many ? ranks.filter((rank) => rank.process?.host === node) : ranks}
            keyOf={(rank, place) => `${rank.rank} ${place}`}
            empty="No rank is known."
          />
        </>
      )}
      <h2>Agents</h2>
      <Table caption="agents of the job" columns={agents} rows={status.agents ?? []} keyOf={(agent) => agent.host ?? ""} most={16} empty="No agent has reported." />
    </>
  );
}
