import type { Asked } from "../live";

// What could not be asked, and whether what is shown is of before.
export function Fault<T>({ asked }: { asked: Asked<T> }) {
  if (!asked.error) return null;
  return (
    <p class="notice bad">
      <bdi>{asked.error}</bdi>
      {asked.data ? " What is shown is of before." : ""}
    </p>
  );
}
