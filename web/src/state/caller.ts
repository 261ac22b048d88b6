/** Who uses this page, and what they may do. */
import { computed, effect, signal } from "@preact/signals";
import { api, type Caller, isAway, isSignedOut, key } from "../api";
import { calls, type Ways } from "../people/calls";

/** Null until the server has answered. */
export const caller = signal<Caller | null>(null);
/** A person with an account is signed in. */
export const isPerson = computed(() => caller.value?.via === "sign_in");
/** A second factor must be set up before anything else. */
export const lacksFactor = computed(() => caller.value?.lacks_second_factor === true);
/** A guest reads what is shared, and sends nothing. */
export const isGuest = computed(() => caller.value?.role === "guest");
/** Admins of a server that others use too. The only user of a machine has nobody to administer. */
export const isAdmin = computed(() => caller.value?.admin === true && caller.value.via !== "local");

export async function loadCaller(): Promise<void> {
  caller.value = await api.me().catch(() => caller.value); // what is wrong is told by whatever else is loaded
}

/** The ways to sign in, once someone has to. */
export const ways = signal<Ways | null>(null);
/** The server asks for a person, not only for a key. */
export const isPersonWanted = computed(
  () => isSignedOut.value && ways.value !== null && (ways.value.accounts || ways.value.first_admin),
);
/** The server has keys and no accounts. */
export const isKeyWanted = computed(() => isSignedOut.value && ways.value !== null && !isPersonWanted.value);

async function loadWays(): Promise<void> {
  ways.value = await calls.ways().catch(() => ways.value);
}

/** Ask who the caller is whenever the key changes or the server is back, and how to sign in when the server refuses. */
export function keepCaller(): void {
  effect(() => {
    if (isSignedOut.value && !isAway.value) queueMicrotask(loadWays);
  });
  effect(() => {
    key.value;
    if (!isAway.value) queueMicrotask(loadCaller);
  });
}
