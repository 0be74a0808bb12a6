// The latency matrix as a heat map. The picture is drawn once for each reply, a pixel a cell; what moves over it
// (pointer, cursor) is another element, so that looking around draws nothing anew.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { PageMatrix } from "../messages";
import { clock, ms } from "../format";
import { colour, isDark } from "../settings";
import { cividis, css, shareOfRatio } from "../scale";
import { savePng } from "./picture";

export interface Place {
  row: number;
  column: number;
}

interface Props {
  matrix: PageMatrix;
  measure: "ratio" | "latency";
  chosen: Place | null;
  onChoose: (place: Place) => void;
}

export function placesOf(matrix: PageMatrix): Map<number, number> {
  const names = matrix.names?.length ?? 0;
  const places = new Map<number, number>();
  matrix.from?.forEach((from, at) => places.set(from * names + (matrix.to?.[at] ?? 0), at));
  return places;
}

export function textOf(matrix: PageMatrix, at: number): string {
  const ratio = matrix.ratio?.[at] ?? 0;
  const pairs = matrix.queuePairs?.[at] ?? 0;
  const usual = ratio > 0 ? `, ${ratio.toFixed(2)} times what is usual` : "";
  return `${(matrix.usPerKib?.[at] ?? 0).toFixed(2)} µs per KiB${usual}, ${pairs} queue pair${pairs === 1 ? "" : "s"}${matrix.slow?.[at] ? ", slow" : ""}`;
}

function legendOf(measure: "ratio" | "latency", most: number): { text: string; share: number }[] {
  return measure === "ratio"
    ? [1, 2, 4, 8].map((ratio) => ({ text: ratio === 8 ? "8 × and more" : `${ratio} ×`, share: shareOfRatio(ratio) }))
    : [0, 0.25, 0.5, 0.75, 1].map((share) => ({ text: `${(share * most).toFixed(1)}`, share }));
}

function mostLatency(matrix: PageMatrix): number {
  let most = 0;
  for (const value of matrix.usPerKib ?? []) most = Math.max(most, value);
  return most;
}

// The map with what it takes to read it elsewhere: what, of when, names where there is room, colours.
function pictureOf(map: HTMLCanvasElement, matrix: PageMatrix, measure: "ratio" | "latency"): HTMLCanvasElement {
  const names = matrix.names ?? [];
  const size = map.width;
  const cell = Math.max(Math.floor(900 / size), 1);
  const named = cell >= 12;
  const [left, top, bottom] = [named ? 150 : 40, named ? 150 : 70, 50];
  const picture = document.createElement("canvas");
  picture.width = left + Math.max(size * cell, 560) + 20;
  picture.height = top + size * cell + bottom;
  const context = picture.getContext("2d");
  if (!context) return map;
  context.fillStyle = colour("ground");
  context.fillRect(0, 0, picture.width, picture.height);
  context.imageSmoothingEnabled = false;
  context.drawImage(map, left, top, size * cell, size * cell);
  context.fillStyle = colour("text");
  context.font = "600 16px system-ui, sans-serif";
  const at = ms(matrix.unixNs);
  context.fillText(`Latency by ${matrix.by ?? ""}, job ${matrix.job ?? ""}${at ? `, ${clock(at, true, true)} UTC` : ""}`, 12, 24);
  context.font = "13px system-ui, sans-serif";
  context.fillText("source ↓  destination →", 12, 44);
  if (named) {
    names.forEach((name, place) => {
      const text = name.slice(0, 20);
      context.textAlign = "right";
      context.fillText(text, left - 6, top + (place + 0.5) * cell + 4);
      context.save();
      context.translate(left + (place + 0.5) * cell + 4, top - 6);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(text, 0, 0);
      context.restore();
    });
  }
  context.textAlign = "left";
  let x = 12;
  const y = picture.height - 18;
  const title = measure === "ratio" ? "times what is usual:" : "µs per KiB:";
  context.fillText(title, x, y);
  x += context.measureText(title).width + 12;
  for (const { text, share } of legendOf(measure, mostLatency(matrix))) {
    context.fillStyle = css(cividis(share));
    context.fillRect(x, y - 12, 14, 14);
    context.fillStyle = colour("text");
    context.fillText(text, x + 20, y);
    x += 20 + context.measureText(text).width + 14;
  }
  return picture;
}

export function Matrix({ matrix, measure, chosen, onChoose }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const names = matrix.names ?? [];
  const size = names.length;
  const places = useMemo(() => placesOf(matrix), [matrix]);
  const [over, setOver] = useState<Place | null>(null);
  const shown = over ?? chosen;
  const dark = isDark();

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || size === 0) return;
    const image = context.createImageData(size, size);
    const [r, g, b] = dark ? [38, 44, 50] : [232, 234, 237];
    for (let at = 0; at < size * size; ++at) image.data.set([r, g, b, 255], at * 4);
    const most = mostLatency(matrix);
    places.forEach((at, place) => {
      const share =
        measure === "ratio" ? shareOfRatio(matrix.ratio?.[at] ?? 0) : (matrix.usPerKib?.[at] ?? 0) / (most || 1);
      image.data.set([...cividis(share), 255], place * 4);
    });
    context.putImageData(image, 0, 0);
  }, [matrix, places, measure, size, dark]);

  const placeAt = (event: { clientX: number; clientY: number }): Place | null => {
    const box = canvas.current?.getBoundingClientRect();
    if (!box) return null;
    const column = Math.floor(((event.clientX - box.left) / box.width) * size);
    const row = Math.floor(((event.clientY - box.top) / box.height) * size);
    return row >= 0 && row < size && column >= 0 && column < size ? { row, column } : null;
  };
  const move = (event: PointerEvent) => {
    const place = placeAt(event);
    setOver((before) => (before?.row === place?.row && before?.column === place?.column ? before : place));
  };
  const keys: Record<string, [number, number]> = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  };
  const press = (event: KeyboardEvent) => {
    const step = keys[event.key];
    if (step) {
      const from = chosen ?? { row: 0, column: 0 };
      const clip = (n: number) => Math.min(Math.max(n, 0), size - 1);
      onChoose(chosen ? { row: clip(from.row + step[0]), column: clip(from.column + step[1]) } : from);
      event.preventDefault();
    }
  };
  const at = shown ? places.get(shown.row * size + shown.column) : undefined;
  const cell = 100 / size;
  return (
    <figure class="matrix">
      <div class="axes">
        <span class="to">destination →</span>
        <span class="from">source ↓</span>
        <div class="ground">
          <canvas ref={canvas} width={size} height={size} aria-hidden="true" />
          <div
            class="surface"
            role="application"
            tabIndex={0}
            aria-label={`latency matrix of ${size} by ${size}, ${places.size} cells; arrow keys move, what is chosen is listed below`}
            onPointerMove={move}
            onPointerLeave={() => setOver(null)}
            onClick={(event) => {
              const place = placeAt(event);
              if (place) onChoose(place);
            }}
            onKeyDown={press}
          >
            {shown && (
              <span
                class="cursor"
                style={{ left: `${shown.column * cell}%`, top: `${shown.row * cell}%`, width: `${cell}%`, height: `${cell}%` }}
              />
            )}
          </div>
        </div>
      </div>
      <figcaption>
        <p class="readout" aria-live="polite">
          {shown ? (
            <>
              <bdi>{names[shown.row]}</bdi> → <bdi>{names[shown.column]}</bdi>: {at === undefined ? "no queue pair" : textOf(matrix, at)}
            </>
          ) : (
            "point at a cell, or move with the arrow keys"
          )}
        </p>
        <Legend measure={measure} matrix={matrix} />
        <p class="under">
          <button
            type="button"
            class="quiet"
            aria-label="save as PNG: latency matrix"
            onClick={() => canvas.current && savePng("latency-matrix", pictureOf(canvas.current, matrix, measure))}
          >
            save as PNG
          </button>
        </p>
      </figcaption>
    </figure>
  );
}

function Legend({ measure, matrix }: { measure: "ratio" | "latency"; matrix: PageMatrix }) {
  const steps = useMemo(() => legendOf(measure, mostLatency(matrix)), [measure, matrix]);
  return (
    <p class="legend">
      {measure === "ratio" ? "times what is usual:" : "µs per KiB:"}
      {steps.map(({ text, share }) => (
        <span key={text}>
          <i style={{ background: css(cividis(share)) }} /> {text}
        </span>
      ))}
      <span>
        <i class="none" /> no queue pair
      </span>
    </p>
  );
}
