// The cluster's network as the path master knows it: leaves and spines with the load of each link, what is broken,
// what was moved, and the way of one connection from NIC to NIC.
import { useMemo, useRef } from "preact/hooks";
import type { ConnectionStatus, ExplainReply, GetTopologyReply, LinkLoad, ListPathsReply, MoveEntry, NicStatus, SwitchStatus } from "../messages";
import { duration, ms } from "../format";
import { useAsk, useLive } from "../live";
import { changeSet, type Route } from "../route";
import { cividis, css } from "../scale";
import { Fault } from "../parts/fault";
import { SaveSvg } from "../parts/picture";
import { Table, type Column } from "../parts/table";
import { Name } from "../parts/time";
import { PastSlider, PastTable, usePast } from "./network_history";

const share = (link: LinkLoad) => (link.capacityMbps ? (link.loadMbps ?? 0) / link.capacityMbps : 0);

const links: Column<LinkLoad>[] = [
  { head: "link", value: (link) => link.name ?? "", show: (link) => <Name text={link.name} /> },
  { head: "state", value: (link) => (link.up ? "up" : "down"), show: (link) => <span class={link.up ? "" : "down"}>{link.up ? "up" : "✕ down"}</span> },
  { head: "capacity (Mbit/s)", value: (link) => link.capacityMbps ?? 0, number: true },
  { head: "promised (Mbit/s)", value: (link) => link.loadMbps ?? 0, number: true, show: (link) => (link.loadMbps ?? 0).toFixed(1) },
  { head: "load (%)", value: (link) => 100 * share(link), number: true, show: (link) => (100 * share(link)).toFixed(0) },
  { head: "queue pairs", value: (link) => link.queuePairs ?? 0, number: true },
  { head: "why", value: (link) => link.fault ?? "", show: (link) => <Name text={link.fault || " "} /> },
];

const moves: Column<MoveEntry>[] = [
  { head: "ago (s)", value: (move) => ms(move.ageNs) / 1000, number: true, show: (move) => duration(ms(move.ageNs)) },
  { head: "job", value: (move) => move.job ?? "", show: (move) => <Name text={move.job} /> },
  { head: "experiment", value: (move) => move.experiment ?? "", show: (move) => <Name text={move.experiment || " "} /> },
  { head: "what", value: (move) => move.text ?? "", show: (move) => <bdi>{move.text}</bdi> },
];

const connectionColumns = (choose: (name: string) => void): Column<ConnectionStatus>[] => [
  { head: "connection", value: (item) => item.connection ?? "", show: (item) => <button type="button" class="cell" onClick={() => choose(item.connection ?? "")}><Name text={item.connection} /></button> },
  { head: "job", value: (item) => item.job ?? "", show: (item) => <Name text={item.job} /> },
  { head: "from", value: (item) => `rank ${item.fromRank ?? 0}, ${item.fromHost ?? ""}` },
  { head: "to", value: (item) => `rank ${item.toRank ?? 0}, ${item.toHost ?? ""}` },
  { head: "queue pairs", value: (item) => item.queuePairs?.length ?? 0, number: true },
  { head: "fenced", value: (item) => item.queuePairs?.reduce((sum, pair) => sum + (pair.fences ?? 0), 0) ?? 0, number: true },
  { head: "note", value: (item) => item.why ?? "", show: (item) => <Name text={item.why || " "} /> },
];

// Both ends of "leaf0>spine1" or "leaf1<spine1".
function endsOf(name: string): [string, string] | null {
  const place = name.search(/[<>]/);
  return place > 0 ? [name.slice(0, place), name.slice(place + 1)] : null;
}

interface Cable {
  a: string;
  b: string;
  share: number;
  up: boolean;
  pairs: number;
  chosen: boolean;
  title: string;
}

// `used`: of cables whose use is told apart from the present's.
function cablesOf(all: LinkLoad[], chosen: Set<string>, used: Map<string, boolean>): Cable[] {
  const cables = new Map<string, Cable>();
  for (const link of all) {
    const ends = endsOf(link.name ?? "");
    if (!ends) continue;
    const key = ends.join("-");
    const cable = cables.get(key) ?? { a: ends[0], b: ends[1], share: 0, up: true, pairs: 0, chosen: false, title: key };
    cables.set(key, cable);
    cable.share = Math.max(cable.share, share(link));
    cable.up = cable.up && !!link.up;
    cable.pairs += link.queuePairs ?? 0;
    cable.chosen = cable.chosen || chosen.has(link.name ?? "");
    cable.title += `\n${link.name}: ${(link.loadMbps ?? 0).toFixed(0)} of ${(link.capacityMbps ?? 0).toFixed(0)} Mbit/s${link.up ? "" : `, down: ${link.fault ?? ""}`}`;
  }
  cables.forEach((cable) => {
    cable.up = used.get(`${cable.a}-${cable.b}`) ?? used.get(`${cable.b}-${cable.a}`) ?? cable.up;
  });
  return [...cables.values()];
}

function Drawing({ switches, nics, cables }: { switches: SwitchStatus[]; nics: NicStatus[]; cables: Cable[] }) {
  const drawing = useRef<SVGSVGElement>(null);
  const spines = switches.filter((item) => item.kind === "spine");
  const leaves = switches.filter((item) => item.kind !== "spine");
  if (switches.length === 0) return <p class="dim">No switch is known yet.</p>;
  const width = Math.max(leaves.length, spines.length, 4) * 110 + 20;
  const spread = (place: number, of: number) => ((place + 0.5) / of) * width;
  const x = new Map<string, number>();
  spines.forEach((item, place) => x.set(item.name ?? "", spread(place, spines.length)));
  leaves.forEach((item, place) => x.set(item.name ?? "", spread(place, leaves.length)));
  const isSpine = new Set(spines.map((item) => item.name));
  const down = cables.filter((cable) => !cable.up).length;
  return (
    <>
    <div class="scroll" tabIndex={0} role="region" aria-label="drawing of the network">
      <svg ref={drawing} class="network" viewBox={`0 0 ${width} 330`} style={{ minWidth: `${Math.min(width, 1400) * 0.8}px`, maxWidth: `${width * 1.4}px` }} role="img" aria-label={`${leaves.length} leaves and ${spines.length} spines, ${cables.length} cables between them, ${down} down; the table of links has each`}>
        {cables.map((cable) => {
          const [upper, lower] = isSpine.has(cable.a) ? [cable.a, cable.b] : [cable.b, cable.a];
          if (!x.has(upper) || !x.has(lower)) return null;
          return (
            <g key={cable.title}>
              <line
                x1={x.get(upper)} y1={64} x2={x.get(lower)} y2={200}
                class={`cable${cable.up ? "" : " broken"}${cable.chosen ? " chosen" : ""}`}
                style={cable.up ? { stroke: css(cividis(cable.share)) } : undefined}
              >
                <title>{cable.title}</title>
              </line>
              {!cable.up && (
                <text x={((x.get(upper) ?? 0) + (x.get(lower) ?? 0)) / 2} y={137} text-anchor="middle" class="cross">✕</text>
              )}
            </g>
          );
        })}
        {switches.map((item) => {
          const at = x.get(item.name ?? "") ?? 0;
          const y = isSpine.has(item.name) ? 40 : 200;
          return (
            <g key={item.name}>
              <rect x={at - 46} y={y} width="92" height="26" rx="5" class="switch" />
              <text x={at} y={y + 17} text-anchor="middle">{(item.name ?? "").slice(0, 12)}<title>{`${item.name} ${item.addresses?.join(", ") ?? ""}`}</title></text>
            </g>
          );
        })}
        {leaves.map((leaf) => {
          const at = x.get(leaf.name ?? "") ?? 0;
          const below = nics.filter((nic) => nic.leaf === leaf.name);
          const bad = below.filter((nic) => !nic.carrier || !nic.agent).length;
          const hosts = new Set(below.map((nic) => nic.host)).size;
          return (
            <g key={leaf.name}>
              <text x={at} y={252} text-anchor="middle" class="dim">{hosts} hosts</text>
              <text x={at} y={270} text-anchor="middle" class="dim">{below.length} NICs</text>
              {bad > 0 && <text x={at} y={290} text-anchor="middle" class="cross">✕ {bad} silent</text>}
            </g>
          );
        })}
        <text x="6" y="18" class="dim">spines</text>
        <text x="6" y="322" class="dim">leaves</text>
      </svg>
    </div>
    <SaveSvg of={drawing} name="network" />
    </>
  );
}

function Way({ connection, explained }: { connection: ConnectionStatus; explained: string[] }) {
  return (
    <section>
      <h2>Why <Name text={connection.connection} /> goes where it goes</h2>
      <ul class="evidence">{explained.map((line, place) => <li key={place}><bdi>{line}</bdi></li>)}</ul>
      <ol class="ways">
        {connection.queuePairs?.map((pair) => (
          <li key={pair.index}>
            queue pair {pair.index ?? 0}: {pair.tuple ? `${pair.tuple.source}:${pair.tuple.sourcePort} → ${pair.tuple.destination}` : `port ${pair.advisedPort ?? 0} advised`}{" "}
            <bdi class="dim">{pair.links?.join(" · ") || "way not known"}</bdi>
            {pair.use === "QUEUE_PAIR_USE_DEAD" ? " ✕ fenced" : ""}
            {pair.moved ? <> moved: <bdi>{pair.moved}</bdi></> : null}
          </li>
        ))}
      </ol>
    </section>
  );
}

export function NetworkView({ route }: { route: Route }) {
  const { fleet } = useLive();
  const known = fleet?.pathMaster ?? false;
  const of = route.set.get("of") ?? "";
  const name = route.set.get("connection") ?? "";
  const topology = useAsk<GetTopologyReply>(known ? "topology" : "", {}, 5000);
  const paths = useAsk<ListPathsReply>(known ? "paths" : "", { of }, 5000);
  const explained = useAsk<ExplainReply>(known && name ? "explain" : "", { connection: name }, 5000);
  const connection = explained.data?.connection ?? paths.data?.connections?.find((item) => item.connection === name);
  const past = usePast(known, of, route);
  const chosen = useMemo(
    () => new Set([...(connection?.queuePairs?.flatMap((pair) => pair.links ?? []) ?? []), ...past.links]), [connection, past.links]);
  const all = useMemo(() => topology.data?.links ?? paths.data?.links ?? [], [topology.data, paths.data]);
  const cables = useMemo(() => cablesOf(all, chosen, past.used), [all, chosen, past.used]);
  if (fleet && !known) return <><h1>Network</h1><p class="dim">No path master is published here: start c4p_master, or `c4 run --c4p`.</p></>;
  const down = all.filter((link) => !link.up);
  return (
    <>
      <h1>Network <span class="dim">known by: {topology.data?.source ?? "…"}</span></h1>
      <Fault asked={topology} />
      {topology.data?.notes?.map((note) => <p class="notice" key={note}><bdi>{note}</bdi></p>)}
      {down.length > 0 && (
        <p class="notice bad">
          {down.length} link{down.length === 1 ? " is" : "s are"} not used: {down.slice(0, 8).map((link) => link.name).join(", ")}{down.length > 8 ? " and more" : ""}
        </p>
      )}
      <PastSlider past={past} route={route} />
      <Drawing switches={topology.data?.switches ?? []} nics={topology.data?.nics ?? []} cables={cables} />
      <p class="legend">
        promised load:
        {[0, 0.5, 1].map((step) => <span key={step}><i style={{ background: css(cividis(step)) }} /> {step * 100} %</span>)}
        <span><i class="broken" /> not used</span>
        {(name || past.links.size > 0) && <span><i class="chosen" /> {name ? "the chosen connection" : "what the event is about"}</span>}
      </p>
      <Fault asked={explained} />
      {name && connection && <Way connection={connection} explained={explained.data?.sentences ?? []} />}
      <PastTable past={past} route={route} />
      <h2>Links</h2>
      <Table caption="links of the network" columns={links} rows={all} keyOf={(link) => link.name ?? ""} most={32} chosen={(link) => chosen.has(link.name ?? "")} empty="No link is known." />
      <h2>Connections</h2>
      <Fault asked={paths} />
      <Table caption="connections" columns={connectionColumns((item) => changeSet(route, { connection: item === name ? "" : item }))} rows={paths.data?.connections ?? []} keyOf={(item) => item.connection ?? ""} most={32} chosen={(item) => item.connection === name} empty="No connection is known." />
      <h2>Moves</h2>
      <Table caption="moves of queue pairs" columns={moves} rows={[...(paths.data?.moves ?? [])].reverse()} keyOf={(_, place) => String(place)} empty="C4D has moved nothing." />
    </>
  );
}
