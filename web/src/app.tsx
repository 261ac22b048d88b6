/** The page: the list of sessions, and one view beside it. Views other than chat are loaded when they are opened. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { needsKey } from "./api";
import { AwayBanner } from "./away";
import { Chat } from "./chat/chat";
import { Help } from "./help";
import { KeyDialog } from "./key";
import { listenForKeys } from "./keyboard";
import { followLinks, place, type View } from "./router";
import { Sidebar } from "./sidebar";
import { isSidebarHidden, isSidebarOpen } from "./state/preferences";
import { Empty } from "./ui/empty";
import { Toasts } from "./ui/toasts";

type Lazy = () => Promise<{ default: ComponentType<{ id: string | null }> }>;

const LAZY: Partial<Record<View, Lazy>> = {
  compare: () => import("./views/compare"),
  runs: () => import("./views/runs"),
  settings: () => import("./views/settings"),
};

export function App() {
  useEffect(() => {
    document.addEventListener("click", followLinks);
    listenForKeys();
  }, []);
  return (
    <div class={`app ${isSidebarHidden.value ? "is-wide" : ""} ${isSidebarOpen.value ? "is-drawer-open" : ""}`}>
      <a class="skip" href="#main">
        Skip to the conversation
      </a>
      <Sidebar />
      <button
        type="button"
        class="backdrop"
        tabIndex={-1}
        aria-label="Close the list of sessions"
        onClick={() => {
          isSidebarOpen.value = false;
        }}
      />
      <main id="main" tabIndex={-1} inert={isSidebarOpen.value}>
        <AwayBanner />
        <CurrentView />
      </main>
      <Toasts />
      <Help />
      {needsKey.value && <KeyDialog />}
    </div>
  );
}

function CurrentView() {
  const { view, id } = place.value;
  if (view === "chat") return <Chat />;
  const load = LAZY[view];
  return load ? <LazyView key={view} load={load} id={id} /> : <Lost />;
}

function LazyView({ load, id }: { load: Lazy; id: string | null }) {
  const [Loaded, setLoaded] = useState<ComponentType<{ id: string | null }> | null>(null);
  const [hasFailed, setFailed] = useState(false);
  useEffect(() => {
    load().then(
      (module) => setLoaded(() => module.default),
      () => setFailed(true),
    );
  }, [load]);
  if (hasFailed) return <Empty title="This part of the page could not be loaded." text="Load the page again." />;
  return Loaded ? <Loaded id={id} /> : <output class="loading" aria-label="Loading" />;
}

function Lost() {
  return (
    <Empty title="There is nothing here.">
      <a class="button" href="/">
        Start a new chat
      </a>
    </Empty>
  );
}
