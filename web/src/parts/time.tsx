import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { clock, duration, inBoth } from "../format";
import { nowMs } from "../live";
import { useSettings } from "../settings";

// What ages are told against: of a recording the moment that is shown; 0: now.
export const Moment = createContext(0);

// The time of day, by the viewer's zone or UTC; both stand in the title.
export function Time({ at, date = false }: { at: number; date?: boolean }) {
  const { utc } = useSettings();
  if (!at) return <span class="dim">not known</span>;
  const farAway = date || Math.abs(nowMs() - at) > 18 * 3600e3;
  return (
    <time dateTime={new Date(at).toISOString()} title={inBoth(at)}>
      {clock(at, utc, farAway)}
      {utc ? " UTC" : ""}
    </time>
  );
}

export function Since({ at, until = 0 }: { at: number; until?: number }) {
  const moment = useContext(Moment);
  if (!at) return null;
  return <span title={inBoth(at)}>{duration((until || moment || nowMs()) - at)}</span>;
}

// A name from elsewhere: text, whatever its letters and its direction.
export function Name({ text, cut = true }: { text: string | undefined; cut?: boolean }) {
  return (
    <bdi class={cut ? "name cut" : "name"} title={cut && (text ?? "").length > 40 ? text : undefined}>
      {text || "?"}
    </bdi>
  );
}
