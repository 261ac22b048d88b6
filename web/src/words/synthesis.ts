/** The words of the one answer that a model makes of those of the panes, in each language. They come with the view. */
import { type Language, t } from ".";

const en = {
  synthesis: "Synthesis",
  synthesize: "Synthesize the responses",
  synthesizeWith: (model: string) => `Synthesize with ${model}`,
  madeOf: (labels: string) => `Made of ${labels}`,
  isOld: "The panes have answered again since.",
  stopIt: "Stop the synthesis",
  makeAgain: "Make it again",
  otherModel: "With another model",
};

export type SynthesisWords = typeof en;

const de: SynthesisWords = {
  synthesis: "Synthese",
  synthesize: "Antworten zusammenführen",
  synthesizeWith: (model) => `Mit ${model} zusammenführen`,
  madeOf: (labels) => `Aus ${labels}`,
  isOld: "Seitdem gibt es neue Antworten.",
  stopIt: "Synthese anhalten",
  makeAgain: "Noch einmal",
  otherModel: "Mit einem anderen Modell",
};

const ar: SynthesisWords = {
  synthesis: "خلاصة",
  synthesize: "اجمع الإجابات في خلاصة",
  synthesizeWith: (model) => `اجمعها باستخدام ${model}`,
  madeOf: (labels) => `من ${labels}`,
  isOld: "توجد إجابات أحدث منها.",
  stopIt: "أوقف الخلاصة",
  makeAgain: "مرة أخرى",
  otherModel: "بنموذج آخر",
};

const ALL: Record<Language, SynthesisWords> = { en, de, ar };

/** The words, now. Who draws with them is drawn again when the language changes. */
export function w(): SynthesisWords {
  t();
  return ALL[document.documentElement.lang as Language] ?? en;
}
