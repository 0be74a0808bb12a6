// The latency matrix as a heat map. The picture is drawn once for each reply, a pixel a cell; what moves over it
// (pointer, cursor) is another element, so that looking around draws nothing anew.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { PageMatrix } from "../messages";
import { clock, ms } from "../format";
import { colour, isDark } from "../settings";
import { cividis, css } from "../scale";
import {
  absentText, columnsIn, holds, legendOf, type Measure, mostLatency, type Place, placesOf, type Region, regionOf, regionText, rowsIn, shareOf,
  textOf, wholeOf,
} from "./matrix_cells";
import { savePng } from "./picture";

interface Props {
  matrix: PageMatrix;
  measure: Measure;
  region: Region | null; // that is zoomed into; null: the whole matrix
  chosen: Place | null;
  onChoose: (place: Place) => void;
  onRegion: (region: Region | null) => void;
}

// The map with what it takes to read it elsewhere: what, of when, names where there is room, colours.
function pictureOf(map: HTMLCanvasElement, matrix: PageMatrix, view: Region, measure: Measure): HTMLCanvasElement {
  const names = matrix.names ?? [];
  const cell = Math.max(Math.floor(900 / Math.max(map.width, map.height)), 1);
  const named = cell >= 12;
  const [left, top, bottom] = [named ? 150 : 40, named ? 150 : 70, 50];
  const picture = document.createElement("canvas");
  picture.width = left + Math.max(map.width * cell, 560) + 20;
  picture.height = top + map.height * cell + bottom;
  const context = picture.getContext("2d");
  if (!context) return map;
  context.fillStyle = colour("ground");
  context.fillRect(0, 0, picture.width, picture.height);
  context.imageSmoothingEnabled = false;
  context.drawImage(map, left, top, map.width * cell, map.height * cell);
  context.fillStyle = colour("text");
  context.font = "600 16px system-ui, sans-serif";
  const at = ms(matrix.unixNs);
  context.fillText(`Latency by ${matrix.by ?? ""}, job ${matrix.job ?? ""}${at ? `, ${clock(at, true, true)} UTC` : ""}`, 12, 24);
  context.font = "13px system-ui, sans-serif";
  context.fillText("source ↓  destination →", 12, 44);
  if (named) {
    context.textAlign = "right";
    names.slice(view.top, view.bottom + 1).forEach((name, place) => {
      context.fillText(name.slice(0, 20), left - 6, top + (place + 0.5) * cell + 4);
    });
    context.textAlign = "left";
    names.slice(view.left, view.right + 1).forEach((name, place) => {
      context.save();
      context.translate(left + (place + 0.5) * cell + 4, top - 6);
      context.rotate(-Math.PI / 2);
      context.fillText(name.slice(0, 20), 0, 0);
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

const STEPS: Record<string, [number, number]> = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
};

const GREY: [number, number, number] = [150, 150, 150]; // measured, but what is usual is not known

interface Brush {
  from: Place;
  to: Place;
}

export function Matrix({ matrix, measure, region, chosen, onChoose, onRegion }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const names = matrix.names ?? [];
  const size = names.length;
  const view = region ?? wholeOf(size);
  const [rows, columns] = [rowsIn(view), columnsIn(view)];
  const places = useMemo(() => placesOf(matrix), [matrix]);
  const [over, setOver] = useState<Place | null>(null);
  const [brush, setBrush] = useState<Brush | null>(null);
  const pulling = useRef(false);
  const shown = over ?? chosen;
  const dark = isDark();

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || size === 0) return;
    const image = context.createImageData(columns, rows);
    const [r, g, b] = dark ? [38, 44, 50] : [232, 234, 237];
    for (let at = 0; at < rows * columns; ++at) image.data.set([r, g, b, 255], at * 4);
    const most = mostLatency(matrix);
    places.forEach((at, place) => {
      const cell = { row: Math.floor(place / size), column: place % size };
      if (!holds(view, cell)) return;
      const share = shareOf(matrix, at, measure, most);
      const to = (cell.row - view.top) * columns + cell.column - view.left;
      image.data.set([...(share === null ? GREY : cividis(share)), 255], to * 4);
    });
    context.putImageData(image, 0, 0);
  }, [matrix, places, measure, size, dark, view.top, view.bottom, view.left, view.right]);

  // A brush is of the view that it was begun in.
  useEffect(() => setBrush(null), [view.top, view.bottom, view.left, view.right, matrix.by]);

  const clip = ({ row, column }: Place): Place => ({
    row: Math.min(Math.max(row, view.top), view.bottom),
    column: Math.min(Math.max(column, view.left), view.right),
  });
  const placeAt = (event: { clientX: number; clientY: number }): Place | null => {
    const box = canvas.current?.getBoundingClientRect();
    if (!box) return null;
    return {
      row: view.top + Math.floor(((event.clientY - box.top) / box.height) * rows),
      column: view.left + Math.floor(((event.clientX - box.left) / box.width) * columns),
    };
  };
  const isOne = ({ from, to }: Brush) => from.row === to.row && from.column === to.column;
  const down = (event: PointerEvent) => {
    const place = placeAt(event);
    if (!place || event.button !== 0) return;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    pulling.current = true;
    setBrush({ from: clip(place), to: clip(place) });
  };
  const move = (event: PointerEvent) => {
    const place = placeAt(event);
    if (pulling.current && place) {
      setBrush((before) => before && { from: before.from, to: clip(place) });
      return;
    }
    const inside = place && holds(view, place) ? place : null;
    setOver((before) => (before?.row === inside?.row && before?.column === inside?.column ? before : inside));
  };
  const up = () => {
    if (!pulling.current || !brush) return;
    pulling.current = false;
    setBrush(null);
    if (isOne(brush)) onChoose(brush.to);
    else onRegion(regionOf(brush.from, brush.to));
  };
  const stop = () => {
    pulling.current = false;
    setBrush(null);
  };
  const press = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    if (step) {
      const from = chosen && holds(view, chosen) ? chosen : null;
      const at = event.shiftKey && brush ? brush.to : from;
      const next = at ? clip({ row: at.row + step[0], column: at.column + step[1] }) : { row: view.top, column: view.left };
      if (event.shiftKey) {
        setOver(null);
        setBrush({ from: brush?.from ?? from ?? next, to: next });
      } else {
        setBrush(null);
        onChoose(next);
      }
    } else if (event.key === "Enter" && brush && !isOne(brush)) {
      onRegion(regionOf(brush.from, brush.to));
    } else if (event.key === "Escape" && brush) {
      stop();
    } else if (event.key === "Escape" && region) {
      onRegion(null);
    } else {
      return;
    }
    event.preventDefault();
  };
  const at = shown ? places.get(shown.row * size + shown.column) : undefined;
  const boxOf = (part: Region) => ({
    left: `${((part.left - view.left) / columns) * 100}%`,
    top: `${((part.top - view.top) / rows) * 100}%`,
    width: `${(columnsIn(part) / columns) * 100}%`,
    height: `${(rowsIn(part) / rows) * 100}%`,
  });
  const brushed = brush && !isOne(brush) ? regionOf(brush.from, brush.to) : null;
  return (
    <figure class="matrix">
      <div class="axes">
        <span class="to">destination →</span>
        <span class="from">source ↓</span>
        <div class="ground">
          <canvas ref={canvas} width={columns} height={rows} aria-hidden="true" />
          <div
            class="surface"
            role="application"
            tabIndex={0}
            aria-label={`latency matrix of ${rows} by ${columns}${region ? `, a region of ${size} by ${size}` : ""}, ${places.size} cells; arrow keys move, with shift they mark a region, Enter zooms into it, Escape goes back; what is chosen is listed below`}
            onPointerDown={down}
            onPointerMove={move}
            onPointerUp={up}
            onPointerCancel={stop}
            onPointerLeave={() => setOver(null)}
            onKeyDown={press}
          >
            {shown && !brushed && holds(view, shown) && (
              <span class="cursor" style={boxOf(regionOf(shown, shown))} />
            )}
            {brushed && <span class="brush" style={boxOf(brushed)} />}
          </div>
        </div>
      </div>
      <figcaption>
        <p class="readout" aria-live="polite">
          {brushed ? (
            <><bdi>{regionText(matrix, brushed)}</bdi></>
          ) : shown ? (
            <>
              <bdi>{names[shown.row]}</bdi> → <bdi>{names[shown.column]}</bdi>: {at === undefined ? absentText(matrix) : textOf(matrix, at)}
            </>
          ) : (
            "point at a cell, or move with the arrow keys; pull over a region to zoom into it, or mark it with shift and the arrow keys and press Enter"
          )}
        </p>
        <Legend measure={measure} matrix={matrix} />
        <p class="under">
          {region && (
            <button type="button" class="quiet" onClick={() => onRegion(null)}>
              show the whole matrix
            </button>
          )}
          <button
            type="button"
            class="quiet"
            aria-label="save as PNG: latency matrix"
            onClick={() => canvas.current && savePng("latency-matrix", pictureOf(canvas.current, matrix, view, measure))}
          >
            save as PNG
          </button>
        </p>
      </figcaption>
    </figure>
  );
}

function Legend({ measure, matrix }: { measure: Measure; matrix: PageMatrix }) {
  const steps = useMemo(() => legendOf(measure, mostLatency(matrix)), [measure, matrix]);
  return (
    <p class="legend">
      {measure === "ratio" ? "times what is usual:" : "µs per KiB:"}
      {steps.map(({ text, share }) => (
        <span key={text}>
          <i style={{ background: css(cividis(share)) }} /> {text}
        </span>
      ))}
      {measure === "ratio" && (
        <span>
          <i style={{ background: css(GREY) }} /> usual not known
        </span>
      )}
      <span>
        <i class="none" /> nothing measured
      </span>
    </p>
  );
}
