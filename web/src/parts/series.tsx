// Iteration times over time, with the changes that were found.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { GetIterationsReply } from "../messages";
import { clock, ms, seconds } from "../format";
import { colour, useSettings } from "../settings";
import { savePng } from "./picture";

const HEIGHT = 280;

export function Series({ reply }: { reply: GetIterationsReply }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const changes = useRef(reply.changes ?? []);
  const { utc, theme } = useSettings();
  changes.current = reply.changes ?? [];

  const data = (): uPlot.AlignedData => {
    const iterations = reply.iterations ?? [];
    return [iterations.map((item) => ms(item.beganUnixNs) / 1000), iterations.map((item) => item.durationS ?? null)];
  };

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const mark = (drawn: uPlot) => {
      const { ctx, bbox } = drawn;
      ctx.save();
      for (const change of changes.current) {
        const x = drawn.valToPos(ms(change.atUnixNs) / 1000, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        const worse = (change.afterS ?? 0) > (change.beforeS ?? 0);
        ctx.strokeStyle = colour(worse ? "confirmed" : "ok");
        ctx.fillStyle = ctx.strokeStyle;
        ctx.lineWidth = 2;
        ctx.setLineDash(change.confirmed ? [] : [6, 4]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
        ctx.textAlign = "left";
        ctx.fillText(worse ? "▲ slower" : "▼ faster", x + 4, bbox.top + 14 * devicePixelRatio);
      }
      ctx.restore();
    };
    const axis = { stroke: colour("text"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
    const made = new uPlot(
      {
        width: element.clientWidth || 600,
        height: HEIGHT,
        tzDate: (at) => (utc ? uPlot.tzDate(new Date(at * 1e3), "Etc/UTC") : new Date(at * 1e3)),
        scales: { y: { range: (_, low, high) => [Math.min(0, low), (high || 1) * 1.08] } },
        axes: [{ ...axis, space: 90, values: (_, values) => values.map((at) => clock(at * 1000, utc)) }, { ...axis, size: 70, values: (_, values) => values.map(seconds) }],
        series: [
          { label: utc ? "UTC" : "time", value: (_, at) => (at == null ? "" : clock(at * 1000, utc)) },
          { label: "iteration", stroke: colour("series"), width: 1.5, points: { size: 4 }, value: (_, value) => (value == null ? "" : seconds(value)) },
        ],
        hooks: { draw: [mark] },
      },
      data(),
      element,
    );
    plot.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: element.clientWidth || 600, height: HEIGHT }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [utc, theme]);

  useEffect(() => plot.current?.setData(data()), [reply]);

  const count = reply.iterations?.length ?? 0;
  return (
    <figure class="series">
      <div ref={box} role="img" aria-label={`times of ${count} iterations, ${changes.current.length} changes; the table below lists them`} />
      <p class="under">
        <button
          type="button"
          class="quiet"
          onClick={() => {
            const canvas = box.current?.querySelector("canvas");
            if (canvas) savePng("iteration-times", canvas);
          }}
        >
          save as PNG
        </button>
      </p>
    </figure>
  );
}
