/** When a schedule runs, as the form has it, as the API has it, and in words. */

import { locale, moment } from "../words/count";
import { s } from "../words/schedules";
import type { When } from "./calls";

export type Repeat = "daily" | "weekdays" | "weekly" | "monthly" | "every" | "once" | "cron";
export const REPEATS: Repeat[] = ["daily", "weekdays", "weekly", "monthly", "every", "once", "cron"];

export interface WhenDraft {
  repeat: Repeat;
  /** The clock, as `09:00`. */
  time: string;
  /** 0 is Sunday. */
  weekday: string;
  day: string;
  number: string;
  unit: "60" | "3600" | "86400";
  at: string;
  expression: string;
  zone: string;
}

export const ownZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

const BLANK: Omit<WhenDraft, "zone"> = {
  repeat: "daily",
  time: "09:00",
  weekday: "1",
  day: "1",
  number: "1",
  unit: "3600",
  at: "",
  expression: "0 9 * * *",
};

const CLOCK = /^(\d{1,2}) (\d{1,2}) (\*|L|\d{1,2}) \* (\*|1-5|[0-6])$/;

/** What of a cron expression the form has fields for. */
function parsed(expression: string): Partial<WhenDraft> {
  const [, minute = "", hour = "", day, weekday] = CLOCK.exec(expression) ?? [];
  if (day === undefined || weekday === undefined || (day !== "*" && weekday !== "*")) return { repeat: "cron" };
  const time = `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`;
  if (weekday === "1-5") return { repeat: "weekdays", time };
  if (weekday !== "*") return { repeat: "weekly", time, weekday };
  return day === "*" ? { repeat: "daily", time } : { repeat: "monthly", time, day };
}

export function draftOfWhen(when: When | null): WhenDraft {
  const zone = when && when.kind !== "every" ? when.time_zone : ownZone();
  const draft = { ...BLANK, zone };
  if (when?.kind === "cron") return { ...draft, expression: when.expression, ...parsed(when.expression) };
  if (when?.kind === "once") return { ...draft, repeat: "once", at: when.at.slice(0, 16) };
  if (when?.kind !== "every") return draft;
  const unit = (["86400", "3600", "60"] as const).find((each) => when.seconds % Number(each) === 0) ?? "60";
  return { ...draft, repeat: "every", unit, number: String(when.seconds / Number(unit)) };
}

export function whenOf(draft: WhenDraft): When {
  const { repeat, zone: time_zone } = draft;
  if (repeat === "every") return { kind: "every", seconds: Math.round(Number(draft.number) * Number(draft.unit)) };
  if (repeat === "once") return { kind: "once", at: draft.at, time_zone };
  const [hour = 0, minute = 0] = draft.time.split(":").map(Number);
  const days = {
    daily: "* * *",
    weekdays: "* * 1-5",
    weekly: `* * ${draft.weekday}`,
    monthly: `${draft.day} * *`,
    cron: "",
  }[repeat];
  const expression = repeat === "cron" ? draft.expression.trim() : `${minute} ${hour} ${days}`;
  return { kind: "cron", expression, time_zone };
}

/** A plan in words: “Every weekday at 09:00, Europe/Berlin”. */
export function inWords(when: When): string {
  const draft = draftOfWhen(when);
  if (when.kind === "every") return s().everySo(Number(draft.number), draft.unit);
  if (when.kind === "once") return s().onceAt(onceShown(when.at));
  return `${s().repeated(draft.repeat, clockOf(draft.time), weekdayName(draft.weekday), draft.day, when.expression)} (${when.time_zone})`;
}

function onceShown(at: string): string {
  return Number.isNaN(Date.parse(at)) ? at : moment(at, "short");
}

function clockOf(time: string): string {
  const [hour = 0, minute = 0] = time.split(":").map(Number);
  return new Intl.DateTimeFormat(locale.value, { timeStyle: "short", timeZone: "UTC" }).format(
    Date.UTC(2024, 0, 1, hour, minute),
  );
}

/** The name of a weekday in the language of the page; 0 is Sunday. */
export function weekdayName(day: string): string {
  const format = new Intl.DateTimeFormat(locale.value, { weekday: "long", timeZone: "UTC" });
  return format.format(Date.UTC(2024, 0, 7 + Number(day)));
}

/** A time by the clock of a plan's zone. */
export function timeInZone(at: string, zone: string): string {
  return new Intl.DateTimeFormat(locale.value, {
    weekday: "short",
    dateStyle: undefined,
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    timeZone: zone,
  }).format(new Date(at));
}
