// A table that can be sorted by its heads, and saved as CSV.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

export interface Column<Row> {
  head: string;
  value: (row: Row) => string | number; // for sorting and CSV
  show?: (row: Row) => ComponentChildren;
  number?: boolean;
}

interface Props<Row> {
  caption: string; // for screen readers, and the file's name
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row, place: number) => string;
  most?: number; // rows that are shown at first
  empty?: string;
  chosen?: (row: Row) => boolean;
}

const quoted = (value: string | number) => {
  let text = String(value);
  // A spreadsheet takes such a cell for a formula.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export function csvOf<Row>(columns: Column<Row>[], rows: Row[]): string {
  const lines = [columns.map((column) => quoted(column.head))];
  for (const row of rows) lines.push(columns.map((column) => quoted(column.value(row))));
  return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
}

export function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function Table<Row>({ caption, columns, rows, keyOf, most = 100, empty = "nothing", chosen }: Props<Row>) {
  const [order, setOrder] = useState<{ by: number; down: boolean } | null>(null);
  const [all, setAll] = useState(false);
  const sorted = useMemo(() => {
    if (!order) return rows;
    const { value } = columns[order.by];
    const sign = order.down ? -1 : 1;
    return [...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (typeof x === "number" && typeof y === "number") return sign * (x - y);
      return sign * String(x).localeCompare(String(y), undefined, { numeric: true });
    });
  }, [rows, columns, order]);
  const shown = all ? sorted : sorted.slice(0, most);
  if (rows.length === 0) return <p class="dim">{empty}</p>;
  return (
    <div class="table">
      <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
        <table>
          <caption class="unseen">{caption}</caption>
          <thead>
            <tr>
              {columns.map((column, place) => {
                const by = order?.by === place;
                return (
                  <th
                    key={column.head}
                    scope="col"
                    class={column.number ? "number" : ""}
                    aria-sort={by ? (order?.down ? "descending" : "ascending") : undefined}
                  >
                    <button type="button" onClick={() => setOrder({ by: place, down: by ? !order?.down : !!column.number })}>
                      {column.head}
                      <span aria-hidden="true">{by ? (order?.down ? " ▾" : " ▴") : ""}</span>
                    </button>
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            {shown.map((row, place) => (
              <tr key={keyOf(row, place)} class={chosen?.(row) ? "chosen" : ""}>
                {columns.map((column) => (
                  <td key={column.head} class={column.number ? "number" : ""}>
                    {column.show ? column.show(row) : column.value(row)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="under">
        {rows.length > most && (
          <button type="button" class="quiet" onClick={() => setAll(!all)}>
            {all ? `show ${most}` : `show all ${rows.length}`}
          </button>
        )}
        <button
          type="button"
          class="quiet"
          aria-label={`save as CSV: ${caption}`}
          onClick={() => save(`${caption.replace(/[^A-Za-z0-9-]+/g, "-")}.csv`, new Blob([csvOf(columns, sorted)], { type: "text/csv" }))}
        >
          save as CSV
        </button>
      </p>
    </div>
  );
}
