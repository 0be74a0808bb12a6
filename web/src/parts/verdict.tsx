// A verdict as a person reads it: one sentence, who waits, what shows it, what to do.
import type { PageVerdict } from "../messages";
import { communicator, inBoth, ms, ranksText, stateOf } from "../format";
import { linkTo } from "../route";
import { Name, Since, Time } from "./time";

const MARKS: Record<string, string> = { confirmed: "▲", suspected: "◆", cleared: "✓" };

export function Mark({ state }: { state: string }) {
  return (
    <span class={`mark ${state}`} aria-hidden="true">
      {MARKS[state] ?? "•"}
    </span>
  );
}

// The sentence begins with its state in capitals, which the mark says already.
export function sentenceOf(page: PageVerdict): string {
  const sentence = page.sentence ?? "";
  const state = stateOf(page.verdict ?? {});
  return sentence.toUpperCase().startsWith(state.toUpperCase()) ? sentence.slice(state.length).trim() : sentence;
}

// `until`: of a recording, the moment that is shown; 0: now.
export function VerdictLine({ page, job, until }: { page: PageVerdict; job: string; until: number }) {
  const verdict = page.verdict ?? {};
  const state = stateOf(verdict);
  return (
    <li class={`verdict line ${state}`}>
      <Mark state={state} />
      <div>
        <a class="sentence" href={linkTo("job", page.jobId ?? "", { verdict: verdict.id ?? "" })}>
          <span class="state">{state}</span> <bdi>{sentenceOf(page)}</bdi>
        </a>
        <p class="dim">
          job <Name text={job} />, since <Time at={ms(verdict.sinceUnixNs)} /> (<Since at={ms(verdict.sinceUnixNs)} until={until} />)
          {page.waiting ? <>; {page.waiting}</> : null}
        </p>
      </div>
    </li>
  );
}

export function VerdictCard({ page, open, onToggle }: { page: PageVerdict; open: boolean; onToggle: () => void }) {
  const verdict = page.verdict ?? {};
  const state = stateOf(verdict);
  const since = ms(verdict.sinceUnixNs);
  const cleared = ms(verdict.clearedUnixNs);
  return (
    <article class={`verdict ${state}`} aria-label={`verdict ${verdict.id ?? ""}`}>
      <header>
        <Mark state={state} />
        <h2>
          <button type="button" class="sentence" aria-expanded={open} onClick={onToggle}>
            <span class="state">{state}</span> <bdi>{sentenceOf(page)}</bdi>
          </button>
        </h2>
        <span class="age" title={inBoth(since)}>
          {cleared ? "lasted " : "for "}
          <Since at={since} until={cleared} />
        </span>
      </header>
      {open && (
        <div class="body">
          {verdict.suggestedAction && (
            <p class="todo">
              <strong>What to do</strong> <bdi>{verdict.suggestedAction}</bdi>
            </p>
          )}
          {page.waiting && <p>Who waits: {page.waiting}.</p>}
          {(verdict.evidence?.length ?? 0) > 0 && (
            <>
              <h3>What shows it</h3>
              <ul class="evidence">
                {verdict.evidence?.map((item, place) => (
                  <li key={place}>
                    <span class="kind">{item.kind}</span> <bdi>{item.text}</bdi>
                  </li>
                ))}
              </ul>
            </>
          )}
          {(verdict.hardware?.length ?? 0) > 0 && (
            <>
              <h3>What the hardware said</h3>
              <ul class="evidence">
                {verdict.hardware?.map((sign, place) => (
                  <li key={place}>
                    <span class="kind">{sign.kind}</span> <Time at={ms(sign.unixNs)} /> <Name text={sign.host} />{" "}
                    <bdi>
                      {sign.device} {sign.text}
                    </bdi>
                    {(sign.times ?? 0) > 1 ? `, ${sign.times} times` : ""}
                  </li>
                ))}
              </ul>
            </>
          )}
          {verdict.interventions?.map((step) => (
            <div key={step.id}>
              <h3>Experiment {step.id}: {step.outcome}</h3>
              <ul class="evidence">{step.lines?.map((line, place) => <li key={place}>{line}</li>)}</ul>
            </div>
          ))}
          <dl class="facts">
            <dt>verdict</dt>
            <dd>{verdict.id}</dd>
            {verdict.communicatorId && verdict.communicatorId !== "0" && (
              <>
                <dt>communicator</dt>
                <dd>{communicator(verdict.communicatorId)}</dd>
              </>
            )}
            <dt>confidence</dt>
            <dd>{(verdict.confidence ?? 0).toFixed(2)}</dd>
            <dt>began</dt>
            <dd>
              <Time at={since} date />
            </dd>
            {ms(verdict.confirmedUnixNs) > 0 && (
              <>
                <dt>confirmed</dt>
                <dd>
                  after <Since at={since} until={ms(verdict.confirmedUnixNs)} />, by {verdict.confirmedBy}
                </dd>
              </>
            )}
            {cleared > 0 && (
              <>
                <dt>over</dt>
                <dd>
                  <Time at={cleared} date />
                </dd>
              </>
            )}
            {(verdict.culprit?.candidates?.length ?? 0) > 0 && (
              <>
                <dt>one of</dt>
                <dd>{ranksText(verdict.culprit?.candidates ?? [])}</dd>
              </>
            )}
            <dt>policy</dt>
            <dd>{verdict.policyVersion}</dd>
          </dl>
        </div>
      )}
    </article>
  );
}
