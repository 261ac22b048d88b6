/** Asks for the reason of a vote, which nobody has to give. */
import { complain } from "../state/toasts";
import { Dialog } from "../ui/dialog";
import { v } from "../words/versions";
import { thumbOf, vote } from "./thumbs";

interface WhyProps {
  session: string;
  message: string;
  onClose: () => void;
}

export default function Why({ session, message, onClose }: WhyProps) {
  const thumb = thumbOf(message);
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const why = String(new FormData(event.currentTarget as HTMLFormElement).get("why") ?? "");
    if (thumb) vote(session, message, thumb.vote, why).catch(complain);
    onClose();
  };
  return (
    <Dialog title={thumb?.vote === "down" ? v().bad : v().good} onClose={onClose} class="narrow">
      <form onSubmit={save}>
        <label>
          {v().why}
          <textarea name="why" rows={3} maxLength={2_000} dir="auto" defaultValue={thumb?.why} />
        </label>
        <footer>
          <button type="submit" class="primary">
            {v().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
