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
  return isDue ? <AskForKey isRequired /> : null;
}

interface AskForKeyProps {
  onClose?: () => void;
  onTaken?: () => void;
  isRequired?: boolean;
}

export function AskForKey({ onClose = () => {}, onTaken = () => {}, isRequired = false }: AskForKeyProps) {
  const [text, setText] = useState("");
  const [isRemembered, setRemembered] = useState(false);
  const [problem, setProblem] = useState(key.value ? t().invalidKey : "");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await call("GET", "/api/me", { headers: { authorization: `Bearer ${text.trim()}` } });
      setKey(text.trim(), isRemembered);
      onTaken();
    } catch (error) {
      setProblem(error instanceof ApiError && error.status === 401 ? t().invalidKey : (error as Error).message);
    }
  };
  return (
    <Dialog title={t().enterKey} onClose={onClose} isRequired={isRequired} class="narrow">
      <form onSubmit={submit}>
        <p>{filled(t().enterKeyHow, <code dir="ltr">holdfast key new NAME</code>)}</p>
        {/* Password managers keep a password with a name. */}
        <input type="text" name="username" autocomplete="username" value="holdfast" readonly hidden />
        <label>
          {t().accessKey}
          <input
            type="password"
            name="password"
            autocomplete="current-password"
            required
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            aria-describedby="key-problem"
          />
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={isRemembered}
            onChange={(event) => setRemembered(event.currentTarget.checked)}
          />
          {t().rememberKey}
        </label>
        <p id="key-problem" class="problem" role="alert">
          {problem}
        </p>
        <footer>
          <button type="submit" class="primary">
            {t().signIn}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
