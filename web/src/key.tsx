/** Asks for the server's key. */
import { useEffect, useState } from "preact/hooks";
import { ApiError, call, key, setKey } from "./api";
import { Dialog } from "./ui/dialog";

/** Another tab may have the key, and hands it on in a moment. */
const PATIENCE = 300;
const UNKNOWN = "The server does not know this key.";

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
  const [problem, setProblem] = useState(key.value ? UNKNOWN : "");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await call("GET", "/api/me", { headers: { authorization: `Bearer ${text.trim()}` } });
      setKey(text.trim());
    } catch (error) {
      setProblem(error instanceof ApiError && error.status === 401 ? UNKNOWN : (error as Error).message);
    }
  };
  return (
    <Dialog title="This server needs a key" onClose={() => {}} isRequired class="narrow">
      <form onSubmit={submit}>
        <p>
          Whoever runs it makes one with <code>holdfast key new NAME</code>. It stays in this browser's tabs and is
          forgotten when they are closed.
        </p>
        <label>
          Key
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
            Open
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
