/** A small button that turns speech into text, in browsers that can. What it does is loaded with the first click. */
import { Mic } from "lucide";
import { useState } from "preact/hooks";
import { Icon } from "../ui/icon";
import { Later } from "../ui/later";
import { t } from "../words";

const DICTATION = () => import("./dictation");

const canDictate = () => "SpeechRecognition" in window || "webkitSpeechRecognition" in window;

export function Dictate({ onText }: { onText: (text: string) => void }) {
  const [isOn, setOn] = useState(false);
  if (!canDictate()) return null;
  return (
    <>
      <button
        type="button"
        class={`quiet icon-button ${isOn ? "is-set" : ""}`}
        aria-label={t().dictate}
        aria-pressed={isOn}
        title={t().dictate}
        onClick={() => setOn(!isOn)}
      >
        <Icon node={Mic} />
      </button>
      {isOn && <Later load={DICTATION} onText={onText} onEnd={() => setOn(false)} />}
    </>
  );
}
