/** The default model, and the models that answer where another cannot. */
import { ArrowRight, Plus, X } from "lucide";
import { useState } from "preact/hooks";
import { ModelDialog } from "../chat/model-dialog";
import { models } from "../state/models";
import { complain } from "../state/toasts";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { change, type ServerSettings, tellSource } from "./state";

const isOpen = ({ editable }: ServerSettings, source: string) => editable && (source === "ui" || source === "default");

export function DefaultModel({ settings }: { settings: ServerSettings }) {
  return (
    <OneModel
      settings={settings}
      name="default_model"
      title={t().defaultModel}
      otherwise={models.value.default ?? t().none}
      why={t().chosenByServer}
      back={t().reset}
    />
  );
}

/** The model that titles chats, which costs a request for each chat: off by default. */
export function TitleModel({ settings }: { settings: ServerSettings }) {
  return (
    <OneModel
      settings={settings}
      name="title_model"
      title={t().chatTitles}
      note={t().chatTitlesNote}
      otherwise={t().chatTitlesOff}
      back={t().turnOff}
    />
  );
}

interface OneModelProps {
  settings: ServerSettings;
  name: "default_model" | "title_model";
  title: string;
  note?: string;
  /** What is there without a model, and why. */
  otherwise: string;
  why?: string;
  /** The button that goes back to it. */
  back: string;
}

function OneModel({ settings, name, title, note, otherwise, why, back }: OneModelProps) {
  const [isChoosing, setChoosing] = useState(false);
  const source = settings.sources[name];
  const chosen = settings[name];
  const badge = chosen ? t().setFrom[source] : why;
  const set = (model: string | null) => change({ [name]: model }).catch(complain);
  const id = name.replace("_", "-");
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {note && <p class="note">{note}</p>}
      <div class="line">
        <strong>{chosen ?? otherwise}</strong>
        {badge && <span class="badge">{badge}</span>}
        {isOpen(settings, source) && (
          <>
            <button type="button" class="small" onClick={() => setChoosing(true)}>
              {t().change}
            </button>
            {chosen && (
              <button type="button" class="small quiet" onClick={() => set(null)}>
                {back}
              </button>
            )}
          </>
        )}
      </div>
      {isChoosing && <ModelDialog title={title} chosen={chosen} onChoose={set} onClose={() => setChoosing(false)} />}
    </section>
  );
}

export function Fallbacks({ settings }: { settings: ServerSettings }) {
  const [from, setFrom] = useState<string | null>(null);
  const [step, setStep] = useState<"from" | "to" | null>(null);
  const source = settings.sources.fallbacks;
  const canChange = isOpen(settings, source);
  const pairs = Object.entries(settings.fallbacks);
  const save = (fallbacks: Record<string, string>) => change({ fallbacks }).catch(complain);
  return (
    <section aria-labelledby="fallbacks">
      <h2 id="fallbacks">{t().fallbacks}</h2>
      <p class="note">{t().fallbacksNote}</p>
      <ul class="cards">
        {pairs.map(([one, other]) => (
          <li key={one}>
            <div class="line">
              <span>{one}</span> <Icon node={ArrowRight} size={14} /> <span>{other}</span>
            </div>
            <span class="badge">{tellSource(source)}</span>
            {canChange && (
              <button
                type="button"
                class="quiet icon-button"
                aria-label={t().removeFallback(one)}
                onClick={() => save(Object.fromEntries(pairs.filter(([each]) => each !== one)))}
              >
                <Icon node={X} size={16} />
              </button>
            )}
          </li>
        ))}
      </ul>
      {canChange && (
        <button type="button" onClick={() => setStep("from")}>
          <Icon node={Plus} size={16} /> {t().addFallback}
        </button>
      )}
      {step === "from" && (
        <ModelDialog
          key="from"
          title={t().fallbackFor}
          chosen={null}
          onChoose={(model) => {
            setFrom(model);
            setStep("to");
          }}
          onClose={() => setStep(null)}
        />
      )}
      {step === "to" && from !== null && (
        <ModelDialog
          key="to"
          title={t().fallbackBy(from)}
          chosen={null}
          onChoose={(model) => save({ ...settings.fallbacks, [from]: model })}
          onClose={() => setStep(null)}
        />
      )}
    </section>
  );
}
