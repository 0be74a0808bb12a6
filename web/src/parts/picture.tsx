// Pictures as files: a drawing as SVG, with what the page's styles say written into it, so that it looks the same
// anywhere; what is painted as PNG.
import type { RefObject } from "preact";
import { colour } from "../settings";
import { save } from "./table";

const STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-family", "font-size",
  "font-weight", "text-anchor", "visibility",
];

// Becomes `style` in the file: the page's content security policy refuses styles that are written as text.
const STYLE = "data-style";

export function svgText(drawing: SVGSVGElement): string {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const from = [drawing, ...drawing.querySelectorAll<SVGElement>("*")];
  const to = [copy, ...copy.querySelectorAll<SVGElement>("*")];
  from.forEach((element, place) => {
    const style = getComputedStyle(element);
    to[place].setAttribute(STYLE, STYLES.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
    to[place].removeAttribute("style");
    to[place].removeAttribute("class");
  });
  const [x, y, width, height] = (copy.getAttribute("viewBox") ?? "0 0 100 100").split(" ").map(Number);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  Object.entries({ x, y, width, height, fill: colour("ground") }).forEach(([name, value]) => ground.setAttribute(name, String(value)));
  copy.insertBefore(ground, copy.firstChild);
  const text = new XMLSerializer().serializeToString(copy).replaceAll(` ${STYLE}="`, ' style="');
  return `<?xml version="1.0" encoding="UTF-8"?>\n${text}\n`;
}

export function SaveSvg({ of, name }: { of: RefObject<SVGSVGElement>; name: string }) {
  return (
    <p class="under">
      <button
        type="button"
        class="quiet"
        aria-label={`save as SVG: ${name}`}
        onClick={() => of.current && save(`${name.replaceAll(" ", "-")}.svg`, new Blob([svgText(of.current)], { type: "image/svg+xml" }))}
      >
        save as SVG
      </button>
    </p>
  );
}

export function savePng(name: string, canvas: HTMLCanvasElement): void {
  canvas.toBlob((picture) => picture && save(`${name}.png`, picture));
}
