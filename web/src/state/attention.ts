/** Chats that wait for their user: in the tab's title. */
import { computed } from "@preact/signals";
import { sessions } from "./sessions";

const waiting = computed(() => sessions.value.filter(({ needs_approval }) => needs_approval));
/** How many chats wait for their user. */
export const waitingCount = computed(() => waiting.value.length);
