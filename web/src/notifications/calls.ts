/** The calls about what a person is told of, and where. */
import { call } from "../api";

export type Wanted = "all" | "needs_you" | "none";

export interface Told {
  notify: Wanted;
  shows_text: boolean;
  devices: { id: string; name: string; added_at: string }[];
  webhooks: { id: string; url: string }[];
}

/** With what browsers subscribe with; null if the server cannot keep a key. */
export type Chosen = Told & { key: string | null };

export interface Device {
  endpoint: string;
  keys: { p256dh: string; auth: string };
  name: string;
  language: string;
}

const PATH = "/api/notifications";
const seen = (session: string) => `/api/sessions/${encodeURIComponent(session)}/seen`;

export const calls = {
  told: () => call<Told>("GET", PATH),
  choose: (body: Partial<Pick<Told, "notify" | "shows_text">>) => call<Chosen>("PUT", PATH, { body }),
  addDevice: (body: Device) => call<{ id: string }>("POST", `${PATH}/devices`, { body }),
  removeDevice: (id: string) => call<void>("DELETE", `${PATH}/devices/${encodeURIComponent(id)}`),
  addWebhook: (url: string) => call<{ id: string; secret: string }>("POST", `${PATH}/webhooks`, { body: { url } }),
  removeWebhook: (id: string) => call<void>("DELETE", `${PATH}/webhooks/${encodeURIComponent(id)}`),
  ofChat: (session: string) => call<{ notify: Wanted | null }>("GET", seen(session)),
  chooseForChat: (session: string, notify: Wanted | null) => call<void>("PUT", seen(session), { body: { notify } }),
  qr: (text: string) => call<{ rows: string[] }>("GET", `/api/qr?text=${encodeURIComponent(text)}`),
};
