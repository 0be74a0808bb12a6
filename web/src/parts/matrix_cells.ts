// What stands in the cells of a latency matrix, and which part of the matrix is looked at.
import type { PageMatrix } from "../messages";
import { shareOfRatio } from "../scale";

export type Measure = "ratio" | "latency";

export interface Place {
  row: number;
  column: number;
}

// Rows and columns of the matrix, the last ones included.
export interface Region {
  top: number;
  bottom: number;
  left: number;
  right: number;
}

export const wholeOf = (size: number): Region => ({ top: 0, bottom: size - 1, left: 0, right: size - 1 });

export const regionOf = (a: Place, b: Place): Region => ({
  top: Math.min(a.row, b.row),
  bottom: Math.max(a.row, b.row),
  left: Math.min(a.column, b.column),
  right: Math.max(a.column, b.column),
});

export const rowsIn = (region: Region) => region.bottom - region.top + 1;
export const columnsIn = (region: Region) => region.right - region.left + 1;
export const holds = (region: Region, { row, column }: Place) =>
  row >= region.top && row <= region.bottom && column >= region.left && column <= region.right;

// By row * names + column: the cell's place in the lists of the matrix.
export function placesOf(matrix: PageMatrix): Map<number, number> {
  const names = matrix.names?.length ?? 0;
  const places = new Map<number, number>();
  matrix.from?.forEach((from, at) => places.set(from * names + (matrix.to?.[at] ?? 0), at));
  return places;
}

// Where nothing was measured nothing is known: that is neither quick nor slow.
export const absentText = (matrix: PageMatrix) =>
  Number(matrix.cellsLeftOut ?? 0) > 0 ? "not known: nothing was measured, or the cell is left out" : "not known: nothing was measured";

export function textOf(matrix: PageMatrix, at: number): string {
  const ratio = matrix.ratio?.[at] ?? 0;
  const pairs = matrix.queuePairs?.[at] ?? 0;
  const usual = ratio > 0 ? `${ratio.toFixed(2)} times what is usual` : "what is usual is not known yet";
  return `${(matrix.usPerKib?.[at] ?? 0).toFixed(2)} µs per KiB, ${usual}, ${pairs} queue pair${pairs === 1 ? "" : "s"}${matrix.slow?.[at] ? ", slow" : ""}`;
}

// How bright the cell is; null: what is usual is not known, so that there is no ratio to paint.
export function shareOf(matrix: PageMatrix, at: number, measure: Measure, most: number): number | null {
  if (measure === "latency") return (matrix.usPerKib?.[at] ?? 0) / (most || 1);
  const ratio = matrix.ratio?.[at] ?? 0;
  return ratio > 0 ? shareOfRatio(ratio) : null;
}

export function legendOf(measure: Measure, most: number): { text: string; share: number }[] {
  return measure === "ratio"
    ? [1, 2, 4, 8].map((ratio) => ({ text: ratio === 8 ? "8 × and more" : `${ratio} ×`, share: shareOfRatio(ratio) }))
    : [0, 0.25, 0.5, 0.75, 1].map((share) => ({ text: `${(share * most).toFixed(1)}`, share }));
}

export function mostLatency(matrix: PageMatrix): number {
  let most = 0;
  for (const value of matrix.usPerKib ?? []) most = Math.max(most, value);
  return most;
}

// "host0 to host7 → host3: 8 cells, 2 slow"
export function regionText(matrix: PageMatrix, region: Region): string {
  const names = matrix.names ?? [];
  const span = (from: number, to: number) => (from === to ? names[from] : `${names[from]} to ${names[to]}`);
  let cells = 0;
  let slow = 0;
  matrix.from?.forEach((row, at) => {
    if (!holds(region, { row, column: matrix.to?.[at] ?? 0 })) return;
    ++cells;
    if (matrix.slow?.[at]) ++slow;
  });
  return `${span(region.top, region.bottom)} → ${span(region.left, region.right)}: ${cells} cell${cells === 1 ? "" : "s"}${slow ? `, ${slow} slow` : ""}`;
}

const numberOf = (name: string) => Number(/^rank (\d+)$/.exec(name)?.[1] ?? NaN);

// The region between these names, as far as they are in the matrix; of ranks those between the numbers, whether or
// not the ends are there. null: there is no such region in it.
export function regionBetween(names: string[], ends: { top: string; bottom: string; left: string; right: string }): Region | null {
  const range = (first: string, last: string): [number, number] => {
    const [low, high] = [numberOf(first), numberOf(last)];
    if (Number.isNaN(low) || Number.isNaN(high)) return [names.indexOf(first), names.indexOf(last)];
    let from = -1;
    let to = -1;
    names.forEach((name, place) => {
      const number = numberOf(name);
      if (number < low || number > high) return;
      if (from < 0) from = place;
      to = place;
    });
    return [from, to];
  };
  const [top, bottom] = range(ends.top, ends.bottom);
  const [left, right] = range(ends.left, ends.right);
  return top >= 0 && left >= 0 && bottom >= top && right >= left ? { top, bottom, left, right } : null;
}
