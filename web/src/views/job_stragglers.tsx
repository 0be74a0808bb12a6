// What a job's stragglers cost, from its profile: workers as a heat map, causes, steps; and what it would be without those that
// are pressed.
import { useMemo, useRef } from "preact/hooks";
import type { ListSessionsReply, PageWhatIf } from "../messages";
import { seconds } from "../format";
import { useAsk } from "../live";
import { changeSet, type Route } from "../route";
import { cividis, css } from "../scale";
import { Fault } from "../parts/fault";
import { SaveSvg } from "../parts/picture";
import { Table, type Column } from "../parts/table";
import { Name } from "../parts/time";

const MOST_CELLS = 2048;
const CELL = 30;
const percent = (share: number) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
// Half as slow again is as bright as it gets.
const shareOf = (slowdown: number) => Math.min(Math.max((slowdown - 1) / 0.5, 0), 1);

interface Worker {
  rank: number;
  dp: number;
  stage: number;
  slowdown: number;
  alone: number;
}

function workersOf(page: PageWhatIf): Worker[] {
  const dpSize = Math.max(page.figures?.dpSize ?? 1, 1);
  return (page.ranks ?? []).map((rank, at) => ({
    rank, dp: at % dpSize, stage: Math.floor(at / dpSize),
    slowdown: page.slowdown?.[at] ?? 1, alone: page.alone?.[at] ?? 1,
  }));
}

const WORKERS: Column<Worker>[] = [
  { head: "rank", value: (worker) => worker.rank, number: true },
  { head: "data-parallel rank", value: (worker) => worker.dp, number: true },
  { head: "stage", value: (worker) => worker.stage, number: true },
  { head: "slow-down", value: (worker) => worker.slowdown, number: true, show: (worker) => worker.slowdown.toFixed(3) },
  { head: "of it alone", value: (worker) => worker.alone, number: true, show: (worker) => worker.alone.toFixed(3) },
];

function HeatMap({ workers, pressed, onPress }: { workers: Worker[]; pressed: Set<string>; onPress: ((word: string) => void) | null }) {
  const drawing = useRef<SVGSVGElement>(null);
  const [dps, stages] = [Math.max(...workers.map((one) => one.dp)) + 1, Math.max(...workers.map((one) => one.stage)) + 1];
  const [left, top] = [64, 26];
  const [width, height] = [Math.max(left + dps * CELL, 330), top + stages * CELL + 44];
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="workers as a heat map">
        <svg ref={drawing} class="workers" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="group"
          aria-label={`workers: ${dps} data-parallel ranks beside each other, ${stages} stages below each other`}>
          <text x={left} y={14} class="axis">data-parallel rank →</text>
          {Array.from({ length: stages }, (_, stage) => (
            <text key={stage} x={4} y={top + stage * CELL + 20} class="axis">stage {stage}</text>
          ))}
          {workers.map((worker) => {
            const word = `worker=${worker.rank}`;
            const chosen = pressed.has(word);
            const [x, y] = [left + worker.dp * CELL, top + worker.stage * CELL];
            const press = () => onPress?.(word);
            return (
              <g key={worker.rank} class={onPress ? "cell can" : "cell"} tabindex={onPress ? 0 : undefined} role={onPress ? "button" : "img"} aria-pressed={onPress ? chosen : undefined}
                aria-label={`rank ${worker.rank}: slow-down ${worker.slowdown.toFixed(2)}${chosen ? ", taken out" : ""}`}
                onClick={press} onKeyDown={(event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); } }}>
                <title>{`rank ${worker.rank}, data-parallel rank ${worker.dp}, stage ${worker.stage}: slow-down ${worker.slowdown.toFixed(3)}`}</title>
                <rect x={x + 1} y={y + 1} width={CELL - 2} height={CELL - 2} fill={css(cividis(shareOf(worker.slowdown)))} />
                <text x={x + CELL / 2} y={y + 19} text-anchor="middle" font-size="9" style={{ fill: shareOf(worker.slowdown) > 0.6 ? "#101010" : "#ffffff" }}>
                  {chosen ? "✕" : worker.slowdown.toFixed(2)}
                </text>
              </g>
            );
          })}
          {[0, 0.5, 1].map((share, at) => (
            <g key={share}>
              <rect x={left + at * 74} y={height - 28} width={14} height={14} fill={css(cividis(share))} />
              <text x={left + at * 74 + 18} y={height - 17} class="axis">{(1 + share / 2).toFixed(2)}{share === 1 ? "+" : ""} ×</text>
            </g>
          ))}
        </svg>
      </div>
      <SaveSvg of={drawing} name="slow-down by worker" />
    </>
  );
}

function Steps({ page }: { page: PageWhatIf }) {
  const drawing = useRef<SVGSVGElement>(null);
  const values = page.stepSlowdown ?? [];
  const most = Math.max(...values, 1.1);
  const bar = Math.max(Math.min(Math.floor(900 / Math.max(values.length, 1)), 24), 2);
  const height = 120;
  if (values.length === 0) return null;
  return (
    <>
      <h2>Steps</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="slow-down by step">
        <svg ref={drawing} viewBox={`0 0 ${60 + values.length * bar} ${height + 24}`} width={60 + values.length * bar} height={height + 24} role="img" aria-label={`slow-down of ${values.length} steps, at most ${most.toFixed(2)}`}>
          <text x={4} y={12} class="axis">{most.toFixed(2)} ×</text>
          <text x={4} y={height} class="axis">1 ×</text>
          {values.map((value, at) => {
            const size = (Math.max(value - 1, 0) / (most - 1)) * (height - 4);
            return (
              <rect key={at} class="step" x={56 + at * bar} y={height - size} width={Math.max(bar - 1, 1)} height={Math.max(size, 1)}>
                <title>{`step ${page.steps?.[at] ?? at}: ${value.toFixed(3)}`}</title>
              </rect>
            );
          })}
          <text x={56} y={height + 16} class="axis">step {page.steps?.[0]} to {page.steps?.[values.length - 1]}</text>
        </svg>
      </div>
      <SaveSvg of={drawing} name="slow-down by step" />
    </>
  );
}

function AnswerTo({ page }: { page: PageWhatIf }) {
  if (!page.fix?.length) return <p class="answer dim">Press workers or causes: the job is replayed without their slowness.</p>;
  const faster = (page.speedup ?? 1) - 1;
  return (
    <p class="answer" role="status">
      Without {page.fix.join(", ").replaceAll("worker=", "rank ").replaceAll("cause=", "")}: a step takes <b>{seconds(page.stepTimeS ?? 0)}</b> and not {seconds(page.figures?.stepTimeS ?? 0)}, <b>{percent(faster)}</b> faster
      {page.removed !== undefined ? <>; <b>{percent(Math.min(page.removed, 1))}</b> of what stragglers cost is gone</> : null}.
    </p>
  );
}

export function StragglersPart({ set, route, recorded }: { set: Record<string, string>; route: Route; recorded: boolean }) {
  const number = route.set.get("session") ?? "";
  const fix = number ? "" : (route.set.get("fix") ?? "");
  const asked = useAsk<PageWhatIf>("whatif", { job: set.job, number, fix }, 0);
  const sessions = useAsk<ListSessionsReply>(recorded ? "" : "sessions", set, 10_000);
  const kept = useRef<{ of: string; page: PageWhatIf } | null>(null);
  if (asked.data) kept.current = { of: number, page: asked.data };
  const page = kept.current?.of === number ? kept.current.page : null;
  const workers = useMemo(() => (page ? workersOf(page) : []), [page]);
  const pressed = new Set(fix ? fix.split(",") : []);
  const press = (word: string) => {
    const next = new Set(pressed);
    if (!next.delete(word)) next.add(word);
    changeSet(route, { fix: [...next].join(",") }, false);
  };
  const analysed = (sessions.data?.sessions ?? []).filter((item) => item.reportKept).reverse();
  const figures = page?.figures;
  const many = workers.length > MOST_CELLS;
  return (
    <>
      {analysed.length > 0 && (
        <p class="controls">
          <label for="session">Profile</label>
          <select id="session" value={number} onChange={(event) => changeSet(route, { session: event.currentTarget.value, fix: "" })}>
            <option value="">what was recorded last</option>
            {analysed.map((item) => <option key={item.number} value={item.number}>session {item.number}: {percent(item.waste ?? 0)} lost</option>)}
          </select>
        </p>
      )}
      <Fault asked={asked} />
      {!page && !asked.error && <p class="wait">The profile is being analysed.</p>}
      {page && figures && (
        <>
          <p>
            Of {figures.steps} steps of {figures.dpSize ?? 1} × {figures.ppSize ?? 1} workers (data-parallel × stages) a step takes {seconds(figures.stepTimeS ?? 0)}; without stragglers it would take {seconds(figures.stepTimeIdealS ?? 0)}:{" "}
            <b>{percent(figures.waste ?? 0)}</b> of the job's time is lost.
          </p>
          {figures.doubtful && <p class="notice bad">The replay is {percent(figures.discrepancy ?? 0)} off what was recorded: take these figures with care.</p>}
          {[...(figures.notSeen ?? []), ...(figures.notes ?? [])].map((note) => <p class="notice" key={note}><bdi>{note}</bdi></p>)}
          {page.canAsk && <AnswerTo page={page} />}
          {(figures.causes ?? []).length > 0 && (
            <>
              <h2>Causes</h2>
              <ul class="causes">
                {(figures.causes ?? []).map((cause, at) => {
                  const word = page.causeFixes?.[at] ?? "";
                  return (
                    <li key={cause.cause}>
                      {page.canAsk && <button type="button" class="quiet" aria-pressed={pressed.has(word)} onClick={() => press(word)}>without</button>}{" "}
                      <b>{cause.cause}</b>, {percent(cause.share ?? 0)} of the loss: <bdi>{cause.evidence}</bdi><br /><span class="dim">→ <bdi>{cause.advice}</bdi></span>
                    </li>
                  );
                })}
              </ul>
            </>
          )}
          <h2>Workers</h2>
          {many ? <p class="dim">{workers.length} workers are more than a drawing shows: the slowest are in the table.</p> : workers.length > 0 && <HeatMap workers={workers} pressed={pressed} onPress={page.canAsk ? press : null} />}
          <Table caption="slow-down by worker" columns={WORKERS} rows={[...workers].sort((a, b) => b.slowdown - a.slowdown)} keyOf={(worker) => `${worker.rank}`} most={8} empty="No worker is known." />
          <Steps page={page} />
        </>
      )}
      {sessions.data?.notAvailable && !page && <p class="dim"><Name text={sessions.data.notAvailable} cut={false} /></p>}
    </>
  );
}
