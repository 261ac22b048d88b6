/** One field of a form, by its kind. */
import { useId } from "preact/hooks";
import { visible } from "../chat/whole-call";
import type { FormField } from "../types";

type Value = string | boolean | string[];
export type Filled = Record<string, Value | undefined>;
export type Content = Record<string, string | number | boolean | string[]>;

/** More choices than this are a list. */
const MOST_SHOWN = 8;
const TYPES: Record<string, "email" | "url" | "date" | "datetime-local"> = {
  email: "email",
  uri: "url",
  date: "date",
  "date-time": "datetime-local",
};

export function startOf(fields: FormField[]): Filled {
  return Object.fromEntries(fields.map((field) => [field.name, valueAtStart(field)]));
}

function valueAtStart({ kind, default: given }: FormField): Value {
  if (kind === "boolean") return given === true;
  if (kind === "array") return Array.isArray(given) ? given : [];
  return given === null ? "" : String(given);
}

/** What was filled in, without what was left empty. */
export function filledIn(fields: FormField[], given: Filled): Content {
  const parts = fields.map(({ name, kind, required }) => {
    const value = given[name];
    const isEmpty = value === "" || (Array.isArray(value) && !value.length && !required);
    return isEmpty || value === undefined ? null : [name, isNumber(kind) ? Number(value) : value];
  });
  return Object.fromEntries(parts.filter((part) => part !== null));
}

const isNumber = (kind: FormField["kind"]) => kind === "number" || kind === "integer";

interface FieldProps {
  field: FormField;
  label: string;
  value: Value | undefined;
  onChange: (value: Value) => void;
}

export function Field({ field, label, value, onChange }: FieldProps) {
  const id = useId();
  const hint = field.description && <small>{visible(field.description)}</small>;
  if (field.kind === "boolean")
    return (
      <label class="choice">
        <input type="checkbox" checked={value === true} onChange={(e) => onChange(e.currentTarget.checked)} />
        <span dir="auto">{label}</span>
        {hint}
      </label>
    );
  if (field.options.length && (field.kind === "array" || field.options.length <= MOST_SHOWN))
    return <Choices field={field} label={label} value={value} onChange={onChange} />;
  return (
    <div class="field">
      <label for={id} dir="auto">
        {label}
      </label>
      {field.options.length ? (
        <select
          id={id}
          required={field.required}
          value={String(value)}
          onChange={(e) => onChange(e.currentTarget.value)}
        >
          <option value="" />
          {field.options.map((option) => (
            <option key={option.value} value={option.value}>
              {visible(option.title)}
            </option>
          ))}
        </select>
      ) : (
        <input
          id={id}
          type={typeOf(field)}
          dir="auto"
          required={field.required}
          value={String(value)}
          onInput={(event) => onChange(event.currentTarget.value)}
          {...limitsOf(field)}
        />
      )}
      {hint}
    </div>
  );
}

/** Its type, which decides what a phone shows to fill it in. */
const typeOf = ({ kind, format }: FormField) => (isNumber(kind) ? "number" : (TYPES[format] ?? "text")) as "text";

function limitsOf({ kind, lowest, highest }: FormField) {
  if (isNumber(kind)) return { min: lowest ?? "", max: highest ?? "", step: kind === "integer" ? 1 : "any" };
  return { ...(lowest && { minLength: lowest }), ...(highest && { maxLength: highest }) };
}

function Choices({ field, label, value, onChange }: FieldProps) {
  const name = useId();
  const chosen = Array.isArray(value) ? value : [value];
  const choose = (option: string, isOn: boolean) => {
    if (field.kind !== "array") onChange(option);
    else
      onChange(
        field.options.map((each) => each.value).filter((each) => (each === option ? isOn : chosen.includes(each))),
      );
  };
  return (
    <fieldset>
      <legend class={field.title ? "" : "sr-only"}>{label}</legend>
      {field.options.map((option) => (
        <label key={option.value} class="choice">
          <input
            type={field.kind === "array" ? "checkbox" : "radio"}
            name={name}
            required={field.required && field.kind !== "array"}
            checked={chosen.includes(option.value)}
            onChange={(event) => choose(option.value, event.currentTarget.checked)}
          />
          <span dir="auto">{visible(option.title)}</span>
        </label>
      ))}
      {field.description && <small>{visible(field.description)}</small>}
    </fieldset>
  );
}
