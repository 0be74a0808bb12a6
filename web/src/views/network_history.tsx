// What befell cables and queue pairs, event by event: a slider goes back to each, and the drawing shows which cables were used then.
import { useMemo } from "preact/hooks";
import type { ListPathHistoryReply, PathEvent } from "../messages";
import { ms } from "../format";
import { nowMs, useAsk, type Asked } from "../live";
import { changeSet, type Route } from "../route";
import { Fault } from "../parts/fault";
import { Table, type Column } from "../parts/table";
import { Name, Time } from "../parts/time";

const WORDS: Record<string, string> = {
  PATH_EVENT_KIND_MOVE: "moved", PATH_EVENT_KIND_LINK_DOWN: "down", PATH_EVENT_KIND_LINK_BACK: "back", PATH_EVENT_KIND_HELD: "back, not used",
  PATH_EVENT_KIND_DRAINED: "drained", PATH_EVENT_KIND_UNDRAINED: "given back", PATH_EVENT_KIND_EXPERIMENT: "experiment",
};
const UNUSED = new Set(["PATH_EVENT_KIND_LINK_DOWN", "PATH_EVENT_KIND_HELD", "PATH_EVENT_KIND_DRAINED"]);
const USED = new Set(["PATH_EVENT_KIND_LINK_BACK", "PATH_EVENT_KIND_UNDRAINED"]);

export interface Happened {
  number: number; // over the master's life: the same however many came since
  at: number;
  event: PathEvent;
}

export interface Past {
  asked: Asked<ListPathHistoryReply>;
  events: Happened[]; // oldest first
  chosen: Happened | null; // null: now
  // By cable, "leaf0-spine1": whether it was used then; cables without events are not there.
  used: Map<string, boolean>;
  links: Set<string>; // that the chosen event is about
}

const cableOf = (name: string) => name.replace(/[<>]/, "-");

function usedAt(events: Happened[], number: number): Map<string, boolean> {
  const used = new Map<string, boolean>();
  for (const { number: of, event } of events) {
    const kind = event.kind ?? "";
    if (!event.cable || !(UNUSED.has(kind) || USED.has(kind))) continue;
    const cable = cableOf(event.cable);
    // Before its first event it was as that event found it.
    if (!used.has(cable)) used.set(cable, UNUSED.has(kind));
    if (of <= number) used.set(cable, USED.has(kind));
  }
  return used;
}

export function usePast(known: boolean, of: string, route: Route): Past {
  const asked = useAsk<ListPathHistoryReply>(known ? "history" : "", { of }, 5000);
  const events = useMemo(() => {
    const now = nowMs();
    const forgotten = Number(asked.data?.forgotten ?? 0);
    return (asked.data?.events ?? []).map((event, at) => ({ number: forgotten + at + 1, at: now - ms(event.ageNs), event }));
  }, [asked.data]);
  const wanted = Number(route.set.get("event") ?? 0);
  const chosen = events.find((item) => item.number === wanted) ?? null;
  const used = useMemo(() => (chosen ? usedAt(events, chosen.number) : new Map<string, boolean>()), [events, chosen]);
  const links = useMemo(() => new Set(chosen ? [...(chosen.event.fromLinks ?? []), ...(chosen.event.toLinks ?? [])] : []), [chosen]);
  return { asked, events, chosen, used, links };
}

const whatOf = ({ event }: Happened) => event.cable || `queue pair ${event.queuePair ?? 0} of ${event.connection ?? ""}`;

const columns = (route: Route, chosen: Happened | null): Column<Happened>[] => [
  { head: "event", value: (item) => item.number, number: true, show: (item) => (
    <button type="button" class="cell" onClick={() => changeSet(route, { event: item.number === chosen?.number ? "" : `${item.number}` })}>{item.number}</button>
  ) },
  { head: "at", value: (item) => new Date(item.at).toISOString(), show: (item) => <Time at={item.at} /> },
  { head: "what", value: (item) => WORDS[item.event.kind ?? ""] ?? "" },
  { head: "of", value: whatOf, show: (item) => <Name text={whatOf(item)} /> },
  { head: "job", value: (item) => item.event.job ?? "", show: (item) => <Name text={item.event.job || " "} /> },
  { head: "from", value: (item) => item.event.fromLinks?.join(" ") ?? "", show: (item) => <Name text={item.event.fromLinks?.join(" ") || " "} /> },
  { head: "to", value: (item) => item.event.toLinks?.join(" ") ?? "", show: (item) => <Name text={item.event.toLinks?.join(" ") || " "} /> },
  { head: "why", value: (item) => item.event.why ?? "", show: (item) => <Name text={item.event.why || " "} /> },
];

export function PastSlider({ past, route }: { past: Past; route: Route }) {
  const { events, chosen } = past;
  if (events.length === 0) return null;
  const place = chosen ? events.indexOf(chosen) : events.length;
  const go = (to: number) => changeSet(route, { event: to >= 0 && to < events.length ? `${events[to].number}` : "" }, false);
  return (
    <div class="scrubber">
      <label for="event">Moment of the network</label>
      <input id="event" type="range" min={0} max={events.length} step={1} value={place} onInput={(event) => go(Number(event.currentTarget.value))}
        aria-valuetext={chosen ? `event ${chosen.number}: ${WORDS[chosen.event.kind ?? ""] ?? ""} ${whatOf(chosen)}` : "now"} />
      <output for="event">
        {chosen ? <>after event {chosen.number}, <Time at={chosen.at} date />: {WORDS[chosen.event.kind ?? ""]} <Name text={whatOf(chosen)} cut={false} /></> : "now"}
      </output>
      <span class="controls">
        <button type="button" class="quiet" disabled={place === 0} onClick={() => go(place - 1)}>previous event</button>
        <button type="button" class="quiet" disabled={!chosen} onClick={() => go(place + 1)}>next event</button>
        {chosen && <span class="dim">Which cables were used then; loads, connections and NICs are of now.</span>}
      </span>
    </div>
  );
}

export function PastTable({ past, route }: { past: Past; route: Route }) {
  const forgotten = Number(past.asked.data?.forgotten ?? 0);
  const shown = useMemo(() => [...past.events].reverse(), [past.events]);
  return (
    <>
      <h2>What befell it</h2>
      <Fault asked={past.asked} />
      {forgotten > 0 && <p class="dim">{forgotten} older events are in the path master's log alone.</p>}
      <Table caption="events of the network" columns={columns(route, past.chosen)} rows={shown} keyOf={(item) => `${item.number}`} most={16} chosen={(item) => item === past.chosen} empty="Nothing has befallen a cable or a queue pair since the path master began." />
    </>
  );
}
