// The verdicts that are open, the first of them unfolded, with who waits for whom.
import { useState } from "preact/hooks";
import type { GetStatusReply, PageVerdicts } from "../messages";
import { stateOf } from "../format";
import { type Asked, useAsk } from "../live";
import { changeSet, type Route } from "../route";
import { VerdictCard, Mark } from "../parts/verdict";
import { WaitGraph } from "../parts/waits";
import { Fault } from "../parts/fault";

// Who has more open at once has one cause for most of them.
const SHOWN_AT_FIRST = 50;

interface Props {
  set: Record<string, string>;
  route: Route;
  verdicts: Asked<PageVerdicts>;
}

export function WrongPart({ set, route, verdicts }: Props) {
  const status = useAsk<GetStatusReply>("status", set, 5000);
  const [showsAll, setShowsAll] = useState(false);
  if (!verdicts.data) return verdicts.error ? <Fault asked={verdicts} /> : <p class="wait">The master is being asked.</p>;
  const all = verdicts.data.verdicts ?? [];
  const asked = route.set.get("verdict");
  const open = all.filter((page) => stateOf(page.verdict ?? {}) !== "cleared" || page.verdict?.id === asked);
  const shown = showsAll ? open : open.filter((page, place) => place < SHOWN_AT_FIRST || page.verdict?.id === asked);
  const unfolded = asked ?? open[0]?.verdict?.id ?? "";
  return (
    <>
      <Fault asked={verdicts} />
      {verdicts.data.agents === 0 && <p class="notice">No agent has reported to this master yet: it knows nothing of the job, and that no verdict is open says nothing.</p>}
      {Number(verdicts.data.processesUnwatched ?? 0) > 0 && (
        <p class="notice">
          {verdicts.data.processesUnwatched} processes cannot be watched: <bdi>{verdicts.data.unwatchedWhy}</bdi>
        </p>
      )}
      {open.length === 0 && (
        <p class="fine">
          <Mark state="cleared" /> Nothing is wrong with this job that C4 knows of.
          {all.length > 0 ? ` ${all.length} verdict${all.length === 1 ? " is" : "s are"} over: see History.` : ""}
        </p>
      )}
      {shown.map((page) => {
        const id = page.verdict?.id ?? "";
        return (
          <div key={id}>
            <VerdictCard page={page} open={id === unfolded} onToggle={() => changeSet(route, { verdict: id === unfolded ? "none" : id })} />
            {id === unfolded && <WaitGraph page={page} ranks={status.data?.ranks ?? []} />}
          </div>
        );
      })}
      {shown.length < open.length && (
        <button type="button" onClick={() => setShowsAll(true)}>
          show {open.length - shown.length} more
        </button>
      )}
      {(verdicts.data.leftOut ?? 0) > 0 && <p class="dim">and {verdicts.data.leftOut} older ones</p>}
    </>
  );
}
