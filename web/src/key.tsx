/** Asks for the server's key. */
import { useEffect, useState } from "preact/hooks";
import { ApiError, call, key, setKey } from "./api";
import { Dialog } from "./ui/dialog";
import { t } from "./words";
import { filled } from "./words/filled";

/** Another tab may have the key, and hands it on in a moment. */
const PATIENCE = 300;

export function KeyDialog() {
  const [isDue, setDue] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setDue(true), PATIENCE);
    return () => clearTimeout(timer);
  }, []);
  return isDue ? <AskForKey /> : null;
}

function AskForKey() {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState(key.value ? t().keyUnknown : "");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await call("GET", "/api/me", { headers: { authorization: `Bearer ${text.trim()}` } });
      setKey(text.trim());
    } catch (error) {
      setProblem(error instanceof ApiError && error.status === 401 ? t().keyUnknown : (error as Error).message);
    }
  };
  return (
    <Dialog title={t().keyNeeded} onClose={() => {}} isRequired class="narrow">
      <form onSubmit={submit}>
        <p>{filled(t().keyHow, <code dir="ltr">holdfast key new NAME</code>)}</p>
        <label>
          {t().key}
          <input
            type="password"
            autocomplete="off"
            required
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            aria-describedby="key-problem"
          />
        </label>
        <p id="key-problem" class="problem" role="alert">
          {problem}
        </p>
        <footer>
          <button type="submit" class="primary">
            {t().open}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
