/** While the server is away, ask every two seconds whether it is back. */
import { effect } from "@preact/signals";
import { isAway } from "../api";

effect(() => {
  if (!isAway.value) return;
  const timer = setInterval(async () => {
    const response = await fetch("/health", { cache: "no-store" }).catch(() => null);
    if (response?.ok) isAway.value = false;
  }, 2_000);
  return () => clearInterval(timer);
});
