/** A field for a password, which can be looked at. */

import { Eye, EyeOff } from "lucide";
import { useState } from "preact/hooks";
import { a } from "../words/people";
import { Icon } from "./icon";

interface PasswordProps {
  label: string;
  name: string;
  isNew?: boolean;
  value?: string;
  onInput?: (value: string) => void;
  describedBy?: string;
  /** It has the focus when it appears. */
  isFirst?: boolean;
}

export function PasswordField({
  label,
  name,
  isNew = false,
  value,
  onInput,
  describedBy,
  isFirst = false,
}: PasswordProps) {
  const [isShown, setShown] = useState(false);
  const said = isShown ? a().hidePassword : a().showPassword;
  return (
    <div class="password">
      <label>
        {label}
        <input
          type={(isShown ? "text" : "password") as "text"} // the types know no field that changes
          name={name}
          required
          autofocus={isFirst}
          maxLength={256}
          autocomplete={isNew ? "new-password" : "current-password"}
          autocapitalize="none"
          spellcheck={false}
          dir="ltr"
          value={value}
          onInput={(event) => onInput?.(event.currentTarget.value)}
          aria-describedby={describedBy}
        />
      </label>
      <button
        type="button"
        class="quiet icon-button"
        aria-pressed={isShown}
        aria-label={said}
        title={said}
        onClick={() => setShown(!isShown)}
      >
        <Icon node={isShown ? EyeOff : Eye} size={16} />
      </button>
    </div>
  );
}
