/** Asks before a temporary chat is lost. */
import { go, wanted } from "../router";
import { Confirm } from "../ui/confirm";
import { t } from "../words";

export default function LeaveDialog({ to }: { to: string }) {
  const close = () => {
    if (wanted.value === to) wanted.value = null;
  };
  return (
    <Confirm title={t().leaveTemporary} action={t().leave} onConfirm={async () => go(to)} onClose={close}>
      <p>{t().leaveTemporaryWhy}</p>
    </Confirm>
  );
}
