/** A field for the code of a second factor: of an authenticator app, or a recovery code. */

import { useLayoutEffect } from "preact/hooks";
import { ApiError } from "../api";
import { useElement } from "../ui/element";
import { a } from "../words/people";

/** It takes the focus when it appears: it is asked for after something else was sent. */
export function CodeField({ isOfApp = false }: { isOfApp?: boolean }) {
  const input = useElement<HTMLInputElement>();
  useLayoutEffect(() => input.current.focus(), []);
  return (
    <label>
      {isOfApp ? a().codeOfApp : a().codeOrRecovery}
      <input
        ref={input}
        type="text"
        name="code"
        class="mono"
        required
        maxLength={64}
        inputMode={isOfApp ? "numeric" : "text"}
        autocomplete="one-time-code"
        autocapitalize="none"
        spellcheck={false}
        dir="ltr"
      />
    </label>
  );
}

/** Whether the password was right, and only the code is missing. */
export function asksForCode(error: unknown): boolean {
  return error instanceof ApiError && error.code === "second_factor_needed";
}
