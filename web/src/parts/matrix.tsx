// The latency matrix as a heat map. The picture is drawn once for each reply, a pixel a cell; what moves over it
// (pointer, cursor) is another element, so that looking around draws nothing anew.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { PageMatrix } from "../messages";
import { isDark } from "../settings";
import { cividis, css, shareOfRatio } from "../scale";
import { save } from "./table";

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
    let most = 0;
    if (measure === "latency") for (const value of matrix.usPerKib ?? []) most = Math.max(most, value);
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
            onClick={() => canvas.current?.toBlob((picture) => picture && save("latency-matrix.png", picture))}
          >
            save as PNG
          </button>
        </p>
      </figcaption>
    </figure>
  );
}

function Legend({ measure, matrix }: { measure: "ratio" | "latency"; matrix: PageMatrix }) {
  const most = useMemo(() => Math.max(0, ...(matrix.usPerKib ?? []).slice(0, 100_000)), [matrix]);
  const steps =
    measure === "ratio"
      ? [1, 2, 4, 8].map((ratio) => ({ text: ratio === 8 ? "8 × and more" : `${ratio} ×`, share: shareOfRatio(ratio) }))
      : [0, 0.25, 0.5, 0.75, 1].map((share) => ({ text: `${(share * most).toFixed(1)}`, share }));
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
