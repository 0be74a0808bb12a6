// A job's timeline as a drawing: a row for each communicator of a rank, a bar for each operation. It is painted once for each
// reply and window; what moves over it is another element. The same painting makes the SVG file.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { PageTimeline, PageTimelineRow } from "../messages";
import { inBoth, ms, seconds } from "../format";
import { colour, isDark } from "../settings";
import { save } from "./table";

export interface Span {
  row: number; // of `rows`
  from: number; // ms since the reply's window began
  to: number;
  name: string;
  number: number; // of the operation; -1: none
  waitsFor: number; // a rank; -1: nobody
  waitsMs: number;
}

export interface Lines {
  rows: PageTimelineRow[];
  spans: Span[][]; // by row, by their begin
}

// The rows in which something stands.
export function linesOf(timeline: PageTimeline): Lines {
  const all = timeline.rows ?? [];
  const spans: Span[][] = all.map(() => []);
  timeline.row?.forEach((row, at) => {
    const from = Number(timeline.startUs?.[at] ?? 0) / 1000;
    spans[row]?.push({
      row, from,
      to: from + Number(timeline.lengthUs?.[at] ?? 0) / 1000,
      name: timeline.names?.[timeline.name?.[at] ?? 0] ?? "",
      number: Number(timeline.number?.[at] ?? -1),
      waitsFor: timeline.waitsFor?.[at] ?? -1,
      waitsMs: timeline.waitsMs?.[at] ?? 0,
    });
  });
  const kept = all.map((_, at) => at).filter((at) => spans[at].length > 0);
  kept.forEach((at, row) => spans[at].forEach((span) => (span.row = row)));
  return { rows: kept.map((at) => all[at]), spans: kept.map((at) => spans[at]) };
}

export function titleOf(row: PageTimelineRow): string {
  const of = (row.rank ?? -1) >= 0 ? `rank ${row.rank}` : row.host ? row.host : "job";
  switch (row.kind) {
    case "PAGE_ROW_KIND_VERDICTS": return "verdicts";
    case "PAGE_ROW_KIND_ITERATIONS": return "iterations";
    case "PAGE_ROW_KIND_HARDWARE": return `${of}: hardware`;
    case "PAGE_ROW_KIND_PROCESS": return `${of}: process`;
    case "PAGE_ROW_KIND_MARKS": return `${of}: program`;
    default: return `${of}: ${(row.name ?? "").replace(/^0x0+(?=.)/, "0x")}`;
  }
}

export function sentenceOf(row: PageTimelineRow, span: Span): string {
  const number = span.number >= 0 ? `, ${row.kind === "PAGE_ROW_KIND_ITERATIONS" ? "number" : "operation"} ${span.number}` : "";
  const wait = span.waitsFor >= 0 ? `; waits ${span.waitsMs > 0 ? `${seconds(span.waitsMs / 1000)} ` : ""}for rank ${span.waitsFor}` : "";
  const length = span.to > span.from ? `: ${seconds((span.to - span.from) / 1000)}` : "";
  return `${titleOf(row)}: ${span.name}${number}${length}${wait}`;
}

// Colours that people tell apart who see few of them (Okabe and Ito), by the first word of an operation.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c3f"];
const NOT_A_FUNCTION = new Set(["verdicts", "iterations", "hardware", "process"]);
const wordOf = (name: string) => name.split(" ", 1)[0];

export function coloursOf(lines: Lines): Map<string, string> {
  const words = new Set<string>();
  lines.spans.forEach((spans, at) => {
    const kind = (lines.rows[at].kind ?? "").replace("PAGE_ROW_KIND_", "").toLowerCase();
    if (!NOT_A_FUNCTION.has(kind)) spans.forEach((span) => words.add(wordOf(span.name)));
  });
  return new Map([...words].sort().map((word, at) => [word, PALETTE[at % PALETTE.length]]));
}

interface Brush {
  bar: (x: number, y: number, width: number, height: number, fill: string) => void;
  text: (x: number, y: number, text: string, fill: string, size?: number) => void;
  line: (x: number, y: number, toX: number, toY: number, stroke: string) => void;
}

const ROW = 18;
const TOP = 24;
// Of the names; less on a narrow screen.
const leftOf = (width: number) => (width < 700 ? 150 : 210);

// Steps that people count in: at most `most` of them in the length.
function stepOf(length: number, most: number): number {
  const raw = Math.max(length / most, 1e-3);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw) ?? 10 * power;
}

interface Window {
  from: number; // ms since the reply's window began
  to: number;
}

function paint(brush: Brush, lines: Lines, window: Window, width: number, colours: Map<string, string>, blamed: Set<number>): void {
  const { from, to } = window;
  const left = leftOf(width);
  const letters = Math.floor(left / 6.4);
  const room = width - left;
  const xOf = (at: number) => left + ((at - from) / (to - from)) * room;
  const [text, dim, line, raised] = ["text", "dim", "line", "raised"].map(colour);
  const fixed: Record<string, string> = {
    PAGE_ROW_KIND_ITERATIONS: dim, PAGE_ROW_KIND_HARDWARE: colour("suspected"), PAGE_ROW_KIND_PROCESS: colour("confirmed"),
  };
  lines.rows.forEach((row, at) => {
    const y = TOP + at * ROW;
    if (at % 2 === 0) brush.bar(0, y, width, ROW, raised);
    const guilty = row.rank !== undefined && blamed.has(row.rank);
    const title = `${guilty ? "▲ " : ""}${titleOf(row)}`;
    brush.text(6, y + 13, title.length > letters ? `${title.slice(0, letters - 1)}…` : title, guilty ? colour("confirmed") : text, 11);
  });
  const step = stepOf(to - from, Math.max(room / 90, 2));
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    brush.line(xOf(at), TOP - 6, xOf(at), TOP + lines.rows.length * ROW, line);
    brush.text(xOf(at) + 3, TOP - 9, `+${seconds(at / 1000) || "0 s"}`, dim, 11);
  }
  lines.rows.forEach((row, at) => {
    const y = TOP + at * ROW + 3;
    let painted = -1; // of narrow bars one for each pixel is enough
    for (const span of lines.spans[at]) {
      if (span.to < from || span.from > to) continue;
      const x = Math.max(xOf(span.from), left);
      const end = Math.min(xOf(span.to), width);
      const bar = Math.max(end - x - (end - x > 3 ? 1 : 0), 1);
      if (bar <= 1 && Math.floor(x) === painted) continue;
      painted = Math.floor(x);
      const verdict = row.kind === "PAGE_ROW_KIND_VERDICTS" ? colour(/^confirmed/i.test(span.name) ? "confirmed" : "suspected") : "";
      brush.bar(x, y, bar, ROW - 6, verdict || fixed[row.kind ?? ""] || colours.get(wordOf(span.name)) || dim);
    }
  });
}

class SvgBrush implements Brush {
  parts: string[] = [];
  private safe = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
  bar = (x: number, y: number, width: number, height: number, fill: string) =>
    void this.parts.push(`<rect x="${x.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" height="${height}" fill="${fill}"/>`);
  text = (x: number, y: number, text: string, fill: string, size = 11) =>
    void this.parts.push(`<text x="${x.toFixed(1)}" y="${y}" font-family="system-ui, sans-serif" font-size="${size}" fill="${fill}">${this.safe(text)}</text>`);
  line = (x: number, y: number, toX: number, toY: number, stroke: string) =>
    void this.parts.push(`<line x1="${x.toFixed(1)}" y1="${y}" x2="${toX.toFixed(1)}" y2="${toY}" stroke="${stroke}"/>`);
}

interface Props {
  timeline: PageTimeline;
  lines: Lines;
  window: Window;
  blamed: Set<number>; // ranks that open verdicts name
  cursor: number | null; // ms since the reply's window began
  onCursor: (at: number) => void;
  onWindow: (window: Window) => void;
}

export function TimelineDrawing({ timeline, lines, window, blamed, cursor, onCursor, onWindow }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(1000);
  const [over, setOver] = useState<Span | null>(null);
  const [pulled, setPulled] = useState<{ from: number; to: number } | null>(null); // pixels, while the pointer is pressed
  const colours = useMemo(() => coloursOf(lines), [lines]);
  const dark = isDark();
  const left = leftOf(width);
  const height = TOP + lines.rows.length * ROW + 4;
  const { from, to } = window;

  useEffect(() => {
    const look = () => box.current && setWidth(Math.max(box.current.clientWidth, 520));
    look();
    const watch = new ResizeObserver(look);
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !canvas.current) return;
    const scale = devicePixelRatio > 1 && height < 8000 ? 2 : 1;
    canvas.current.width = width * scale;
    canvas.current.height = height * scale;
    context.scale(scale, scale);
    context.fillStyle = colour("ground");
    context.fillRect(0, 0, width, height);
    paint(
      {
        bar: (x, y, w, h, fill) => {
          context.fillStyle = fill;
          context.fillRect(x, y, w, h);
        },
        text: (x, y, text, fill, size = 11) => {
          context.fillStyle = fill;
          context.font = `${size}px system-ui, sans-serif`;
          context.fillText(text, x, y);
        },
        line: (x, y, toX, toY, stroke) => {
          context.strokeStyle = stroke;
          context.beginPath();
          context.moveTo(x, y);
          context.lineTo(toX, toY);
          context.stroke();
        },
      },
      lines, { from, to }, width, colours, blamed,
    );
  }, [lines, from, to, width, height, colours, dark, blamed]);

  const placeOf = (event: PointerEvent) => {
    const at = canvas.current?.getBoundingClientRect();
    return at ? { x: event.clientX - at.left, y: event.clientY - at.top } : { x: 0, y: 0 };
  };
  const timeAt = (x: number) => from + (Math.min(Math.max(x - left, 0), width - left) / (width - left)) * (to - from);
  const xOf = (at: number) => left + ((at - from) / (to - from)) * (width - left);
  const spanAt = (x: number, y: number): Span | null => {
    const row = Math.floor((y - TOP) / ROW);
    if (x < left || row < 0 || row >= lines.rows.length) return null;
    const near = ((to - from) / (width - left)) * 2;
    const at = timeAt(x);
    const found = lines.spans[row].filter((span) => span.from - near <= at && span.to + near >= at);
    return found.pop() ?? null;
  };
  const move = (event: PointerEvent) => {
    const { x, y } = placeOf(event);
    if (pulled) return setPulled({ ...pulled, to: x });
    const span = spanAt(x, y);
    setOver((before) => (before === span ? before : span));
  };
  const press = (event: PointerEvent) => {
    const { x } = placeOf(event);
    if (x < left || event.button !== 0) return;
    canvas.current?.setPointerCapture(event.pointerId);
    setPulled({ from: x, to: x });
  };
  const release = () => {
    if (!pulled) return;
    setPulled(null);
    if (Math.abs(pulled.to - pulled.from) < 6) return onCursor(timeAt(pulled.from));
    const [a, b] = [timeAt(pulled.from), timeAt(pulled.to)];
    onWindow({ from: Math.min(a, b), to: Math.max(a, b) });
  };
  const key = (event: KeyboardEvent) => {
    const part = (to - from) / 10;
    const moves: Record<string, Window> = {
      ArrowLeft: { from: from - part, to: to - part },
      ArrowRight: { from: from + part, to: to + part },
      "+": { from: from + 2.5 * part, to: to - 2.5 * part },
      "=": { from: from + 2.5 * part, to: to - 2.5 * part },
      "-": { from: from - 5 * part, to: to + 5 * part },
    };
    const wanted = moves[event.key];
    if (!wanted || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    onWindow(wanted);
  };
  const saveSvg = () => {
    const brush = new SvgBrush();
    brush.bar(0, 0, width, height, colour("ground"));
    paint(brush, lines, { from, to }, width, colours, blamed);
    const text = `<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${brush.parts.join("\n")}</svg>\n`;
    save(`timeline-${(timeline.job ?? "").replace(/[^A-Za-z0-9-]+/g, "-")}.svg`, new Blob([text], { type: "image/svg+xml" }));
  };
  const shown = over;
  const began = ms(timeline.fromUnixNs);
  return (
    <>
      <ul class="legend">
        {[...colours].map(([word, fill]) => (
          <li key={word}><svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" fill={fill} /></svg> <bdi>{word}</bdi></li>
        ))}
      </ul>
      <div class="timeline" ref={box} tabIndex={0} role="group" onKeyDown={key}
        aria-label={`timeline of ${lines.rows.length} rows; arrows left and right move it, plus and minus make it closer and wider; the table below says the same`}>
        <div class="sheet">
        <canvas
          ref={canvas} class="lanes" aria-hidden="true" style={{ width: `${width}px`, height: `${height}px` }}
          onPointerMove={move} onPointerLeave={() => setOver(null)} onPointerDown={press} onPointerUp={release} onPointerCancel={() => setPulled(null)}
        />
        <svg class="over" aria-hidden="true" width={width} height={height}>
          {cursor !== null && cursor >= from && cursor <= to && <line x1={xOf(cursor)} x2={xOf(cursor)} y1={TOP - 6} y2={height} class="cursor" />}
          {pulled && <rect x={Math.min(pulled.from, pulled.to)} y={TOP} width={Math.abs(pulled.to - pulled.from)} height={height - TOP} class="pulled" />}
          {shown && <rect x={Math.max(xOf(shown.from), left)} y={TOP + shown.row * ROW + 2} width={Math.max(Math.min(xOf(shown.to), width) - Math.max(xOf(shown.from), left), 2)} height={ROW - 4} class="shown" />}
          {shown && shown.waitsFor >= 0 && lines.rows.map((row, at) =>
            row.rank === shown.waitsFor && row.kind === lines.rows[shown.row].kind && row.name === lines.rows[shown.row].name ? (
              <line key={at} x1={Math.min(xOf(shown.to), width)} y1={TOP + (shown.row + 0.5) * ROW} x2={Math.min(xOf(shown.to), width)} y2={TOP + (at + 0.5) * ROW} class="cursor" />
            ) : null)}
        </svg>
        </div>
      </div>
      <p class="under said">
        <bdi>{shown ? `${sentenceOf(lines.rows[shown.row], shown)}, from ${inBoth(began + shown.from)}` : "Point at a bar; press and pull over a part to look closer; click to see below what everybody had in hand then."}</bdi>
      </p>
      <p class="under">
        <button type="button" class="quiet" onClick={saveSvg} aria-label="save as SVG: timeline">save as SVG</button>
      </p>
    </>
  );
}
