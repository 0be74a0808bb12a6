// Everything that was wrong, when and for how long; what was done about it; who was told.
import { useContext, useRef } from "preact/hooks";
import type { Alert, GetRecoveryReply, ListAlertsReply, ListSessionsReply, PageVerdict, PageVerdicts, ProfilingSession, RecoveryIncident } from "../messages";
import { ms, seconds, stateOf, syndrome, word } from "../format";
import { type Asked, nowMs, useAsk } from "../live";
import { Fault } from "../parts/fault";
import { SaveSvg } from "../parts/picture";
import { Table, type Column } from "../parts/table";
import { Moment, Name, Since, Time } from "../parts/time";
import { Mark, sentenceOf } from "../parts/verdict";
import { linkTo } from "../route";

// Of one that is open: now, or the moment of the recording.
const endOf = (page: PageVerdict, now: number) => ms(page.verdict?.clearedUnixNs) || now;

const history = (id: string, now: number): Column<PageVerdict>[] => [
  { head: "state", value: (page) => stateOf(page.verdict ?? {}), show: (page) => <span><Mark state={stateOf(page.verdict ?? {})} /> {stateOf(page.verdict ?? {})}</span> },
  { head: "what", value: (page) => sentenceOf(page), show: (page) => <a href={linkTo("job", id, { verdict: page.verdict?.id ?? "" })}><bdi>{sentenceOf(page)}</bdi></a> },
  { head: "syndrome", value: (page) => syndrome(page.verdict ?? {}) },
  { head: "began", value: (page) => ms(page.verdict?.sinceUnixNs), show: (page) => <Time at={ms(page.verdict?.sinceUnixNs)} /> },
  { head: "named after (s)", value: (page) => (ms(page.verdict?.confirmedUnixNs) ? (ms(page.verdict?.confirmedUnixNs) - ms(page.verdict?.sinceUnixNs)) / 1000 : 0), number: true, show: (page) => <Since at={ms(page.verdict?.confirmedUnixNs) && ms(page.verdict?.sinceUnixNs)} until={ms(page.verdict?.confirmedUnixNs)} /> },
  { head: "lasted (s)", value: (page) => Math.round((endOf(page, now) - ms(page.verdict?.sinceUnixNs)) / 1000), number: true, show: (page) => <Since at={ms(page.verdict?.sinceUnixNs)} until={endOf(page, now)} /> },
];

const incidents: Column<RecoveryIncident>[] = [
  { head: "incident", value: (item) => Number(item.id ?? 0), number: true },
  { head: "phase", value: (item) => word(item.phase, "RECOVERY_PHASE") || "proposed" },
  { head: "held by", value: (item) => word(item.hold, "RECOVERY_HOLD") },
  { head: "nodes", value: (item) => item.nodes?.map((node) => `${node.name}${node.backup ? ` → ${node.backup}` : ""}`).join(", ") ?? "", show: (item) => <Name text={item.nodes?.map((node) => `${node.name}${node.backup ? ` → ${node.backup}` : ""}`).join(", ") || " "} /> },
  { head: "began", value: (item) => ms(item.onsetUnixNs), show: (item) => <Time at={ms(item.onsetUnixNs)} /> },
  { head: "down (s)", value: (item) => (ms(item.runningUnixNs) ? (ms(item.runningUnixNs) - ms(item.onsetUnixNs)) / 1000 : 0), number: true, show: (item) => <Since at={ms(item.onsetUnixNs)} until={ms(item.runningUnixNs)} /> },
  { head: "why", value: (item) => item.reason ?? "", show: (item) => <Name text={item.reason || " "} /> },
];

const alerts: Column<Alert>[] = [
  { head: "rule", value: (item) => item.rule ?? "", show: (item) => <Name text={item.rule} /> },
  { head: "state", value: (item) => (item.firing ? "firing" : item.over ? "pending" : "resolved") },
  { head: "what", value: (item) => item.text ?? item.condition ?? "", show: (item) => <bdi>{item.text ?? item.condition}</bdi> },
  { head: "since", value: (item) => ms(item.sinceUnixNs), show: (item) => <Time at={ms(item.sinceUnixNs)} /> },
  { head: "severity", value: (item) => item.detail?.severity ?? "" },
];

const sessions: Column<ProfilingSession>[] = [
  { head: "session", value: (item) => Number(item.number ?? 0), number: true },
  { head: "state", value: (item) => word(item.state, "SESSION_STATE") },
  { head: "began", value: (item) => ms(item.begunUnixNs), show: (item) => <Time at={ms(item.begunUnixNs)} /> },
  { head: "steps", value: (item) => item.steps ?? 0, number: true },
  { head: "slowdown", value: (item) => item.slowdown ?? 0, number: true, show: (item) => (item.slowdown ? item.slowdown.toFixed(3) : "") },
  { head: "waste (%)", value: (item) => 100 * (item.waste ?? 0), number: true, show: (item) => (item.slowdown ? (100 * (item.waste ?? 0)).toFixed(1) : "") },
  { head: "step (s)", value: (item) => item.stepTimeS ?? 0, number: true, show: (item) => (item.stepTimeS ? seconds(item.stepTimeS) : "") },
  { head: "first cause", value: (item) => item.causes?.[0]?.cause ?? item.why ?? "", show: (item) => <bdi>{item.causes?.[0] ? `${item.causes[0].cause}: ${item.causes[0].evidence ?? ""}` : item.why}</bdi> },
];

// When what was wrong, a bar each, the newest at the bottom.
function Strip({ verdicts, now }: { verdicts: PageVerdict[]; now: number }) {
  const drawing = useRef<SVGSVGElement>(null);
  const end = (page: PageVerdict) => endOf(page, now);
  const shown = [...verdicts].sort((a, b) => ms(a.verdict?.sinceUnixNs) - ms(b.verdict?.sinceUnixNs)).slice(-40);
  if (shown.length === 0) return null;
  const from = ms(shown[0].verdict?.sinceUnixNs);
  const to = Math.max(...shown.map(end), from + 1);
  const height = shown.length * 12 + 22;
  const x = (at: number) => 4 + ((at - from) / (to - from)) * 792;
  return (
    <figure>
      <svg ref={drawing} class="strip" viewBox={`0 0 800 ${height}`} role="img" aria-label={`${shown.length} verdicts over time; the table below lists them`}>
        {shown.map((page, place) => (
          <rect
            key={page.verdict?.id}
            x={x(ms(page.verdict?.sinceUnixNs))}
            y={place * 12 + 2}
            width={Math.max(x(end(page)) - x(ms(page.verdict?.sinceUnixNs)), 3)}
            height="8"
            rx="2"
            class={ms(page.verdict?.confirmedUnixNs) ? "confirmed" : "suspected"}
          >
            <title>{sentenceOf(page)}</title>
          </rect>
        ))}
        <path d={`M4 ${height - 18}H796`} class="edge" />
      </svg>
      <figcaption class="dim spread">
        <Time at={from} date /> <span><i class="key confirmed" /> confirmed <i class="key suspected" /> suspected only</span> <Time at={to} date />
      </figcaption>
      <SaveSvg of={drawing} name="verdicts over time" />
    </figure>
  );
}

export function HistoryPart({ set, verdicts }: { set: Record<string, string>; verdicts: Asked<PageVerdicts> }) {
  const recovery = useAsk<GetRecoveryReply>("recovery", set, 5000);
  const told = useAsk<ListAlertsReply>("alerts", set, 10_000);
  const profiles = useAsk<ListSessionsReply>("sessions", set, 10_000);
  const all = verdicts.data?.verdicts ?? [];
  const now = useContext(Moment) || nowMs();
  return (
    <>
      <Fault asked={verdicts} />
      <h2>Verdicts</h2>
      <Strip verdicts={all} now={now} />
      <Table caption="verdicts of the job" columns={history(set.job, now)} rows={all} keyOf={(page) => page.verdict?.id ?? ""} empty="There was no verdict." />
      {recovery.data && (
        <>
          <h2>Recovery <span class="dim">{recovery.data.mode}; {recovery.data.driver || "no driver"}</span></h2>
          <Table caption="incidents of recovery" columns={incidents} rows={recovery.data.state?.incidents ?? []} keyOf={(item) => item.id ?? ""} empty="There was no incident." />
        </>
      )}
      {told.data && (
        <>
          <h2>Alerts</h2>
          <Table caption="alerts of the job" columns={alerts} rows={told.data.alerts ?? []} keyOf={(item, place) => `${item.id} ${place}`} empty="Nobody was told of anything." />
        </>
      )}
      {profiles.data && (
        <>
          <h2>What stragglers cost</h2>
          <Table caption="profiling sessions" columns={sessions} rows={[...(profiles.data.sessions ?? [])].reverse()} keyOf={(item) => item.number ?? ""} empty={profiles.data.notAvailable || "There was no profiling session: c4 smon run"} />
        </>
      )}
    </>
  );
}
