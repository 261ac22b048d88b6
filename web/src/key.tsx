/** Asks for the server's key. */
import { useState } from "preact/hooks";
import { ApiError, api, key, needsKey, setKey } from "./api";
import { current } from "./state/current";
import { Dialog } from "./ui/dialog";

export function KeyDialog() {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState(key.value ? "The server does not know this key." : "");
  const submit = async (event: Event) => {
    event.preventDefault();
    const before = key.value;
    key.value = text.trim();
    try {
      await api.me();
      setKey(text.trim());
      current.value?.load();
    } catch (error) {
      key.value = before;
      needsKey.value = true;
      setProblem(
        error instanceof ApiError && error.status === 401
          ? "The server does not know this key."
          : (error as Error).message,
      );
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
