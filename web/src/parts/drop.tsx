// Recordings that somebody drops onto the page, wherever on it, or chooses by its button: the page's server runs the
// master's logic over them and shows them beside its jobs.
import { useEffect, useRef, useState } from "preact/hooks";
import { bring, useLive } from "../live";
import { linkTo } from "../route";

const MIB = 1 << 20;

interface Word {
  text: string;
  bad: boolean;
}

async function take(file: File, most: number): Promise<string> {
  if (file.size === 0) throw new Error(`${file.name} is empty, or a folder`);
  if (file.size > most) {
    throw new Error(`${file.name} has ${(file.size / MIB).toFixed(0)} MiB, and the page takes ${(most / MIB).toFixed(0)}: show it by c4 page --recording FILE`);
  }
  return bring(file);
}

export function useRecordings(): { word: Word | null; open: (files: FileList | null) => void; over: boolean } {
  const most = Number(useLive().fleet?.mostRecordingBytes ?? 0);
  const [word, setWord] = useState<Word | null>(null);
  const [over, setOver] = useState(false);
  const open = async (files: FileList | null) => {
    let last = "";
    for (const file of files ?? []) {
      setWord({ text: `${file.name} is being read`, bad: false });
      try {
        last = await take(file, most);
        setWord(null);
      } catch (fault) {
        setWord({ text: fault instanceof TypeError ? `${file.name} could not be sent to the server of this page` : (fault as Error).message, bad: true });
        break;
      }
    }
    if (last) location.hash = linkTo("job", last);
  };
  useEffect(() => {
    if (!most) return;
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const drag = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(event.type === "dragover");
    };
    const leave = (event: DragEvent) => {
      if (!event.relatedTarget) setOver(false);
    };
    const drop = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      void open(event.dataTransfer?.files ?? null);
    };
    addEventListener("dragover", drag);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", drag);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, [most]);
  return { word, open: (files) => void open(files), over };
}

export function OpenRecording({ open }: { open: (files: FileList | null) => void }) {
  const input = useRef<HTMLInputElement>(null);
  if (!Number(useLive().fleet?.mostRecordingBytes ?? 0)) return null;
  return (
    <>
      <button type="button" class="quiet" onClick={() => input.current?.click()}>open a recording</button>
      <input
        ref={input}
        type="file"
        multiple
        accept=".c4rec,.before"
        class="unseen"
        tabIndex={-1}
        aria-label="recordings to show"
        onChange={(event) => {
          open(event.currentTarget.files);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}
