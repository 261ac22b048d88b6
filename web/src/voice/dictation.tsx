/** Listens with the browser's own recognition, after its user was told where the sound may go. */
import { useEffect, useRef, useState } from "preact/hooks";
import { toast } from "../state/toasts";
import { Dialog } from "../ui/dialog";
import { v } from "../words/versions";

const TOLD = "holdfast.dictation";

/** The part of the interface that is used: TypeScript does not know it, since not all browsers have it. */
interface Recognition {
  lang: string;
  continuous: boolean;
  interimResults: boolean;
  onresult: ((event: { resultIndex: number; results: ArrayLike<Recognized> }) => void) | null;
  onend: (() => void) | null;
  onerror: ((event: { error: string }) => void) | null;
  start(): void;
  abort(): void;
}

interface Recognized extends ArrayLike<{ transcript: string }> {
  isFinal: boolean;
}

type Recogniser = new () => Recognition;

const recogniser = (): Recogniser | undefined =>
  (window as { SpeechRecognition?: Recogniser; webkitSpeechRecognition?: Recogniser }).SpeechRecognition ??
  (window as { webkitSpeechRecognition?: Recogniser }).webkitSpeechRecognition;

interface DictationProps {
  onText: (text: string) => void;
  onEnd: () => void;
}

export default function Dictation({ onText, onEnd }: DictationProps) {
  const [isTold, setTold] = useState(localStorage.getItem(TOLD) === "yes");
  const latest = useRef({ onText, onEnd });
  latest.current = { onText, onEnd };
  useEffect(() => (isTold ? listen(latest) : undefined), [isTold]);
  if (isTold) return null;
  const begin = () => {
    localStorage.setItem(TOLD, "yes");
    setTold(true);
  };
  return (
    <Dialog title={v().dictateTitle} onClose={onEnd} class="narrow">
      <p>{v().dictateHow}</p>
      <footer>
        <button type="button" class="primary" onClick={begin}>
          {v().dictateStart}
        </button>
      </footer>
    </Dialog>
  );
}

/** Listen until it ends or is told to; the returned function ends it. */
function listen(latest: { current: DictationProps }): () => void {
  const Recogniser = recogniser();
  if (!Recogniser) return () => {};
  const recognition = new Recogniser();
  recognition.lang = document.documentElement.lang;
  recognition.continuous = true;
  recognition.interimResults = false;
  recognition.onresult = ({ resultIndex, results }) => {
    for (let at = resultIndex; at < results.length; at++) {
      const said = results[at];
      if (said?.isFinal) latest.current.onText(said[0]?.transcript.trim() ?? "");
    }
  };
  recognition.onerror = ({ error }) => {
    if (error !== "aborted" && error !== "no-speech") toast(v().dictateFailed(error), { kind: "bad" });
  };
  recognition.onend = () => latest.current.onEnd();
  recognition.start();
  return () => recognition.abort();
}
