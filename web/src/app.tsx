/** The page: the list of sessions, and one view beside it. Views other than chat are loaded when they are opened. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { proofWanted } from "./api";
import { AwayBanner, NotSavingBanner } from "./away";
import { Chat } from "./chat/chat";
import { KeyDialog } from "./key";
import { isHelpOpen } from "./keyboard";
import { isAtEntrance, place, type View, wanted } from "./router";
import { Sidebar } from "./sidebar";
import { isKeyWanted, isPersonWanted, lacksFactor } from "./state/caller";
import { isSidebarHidden, isSidebarOpen } from "./state/preferences";
import { Empty } from "./ui/empty";
import { Later } from "./ui/later";
import { lazily } from "./ui/lazily";
import { Toasts } from "./ui/toasts";
import { t } from "./words";

type Lazy = () => Promise<{ default: ComponentType<{ id: string | null }> }>;

const HELP = () => import("./help");
const LEAVE_DIALOG = () => import("./chat/leave-dialog");
const PROOF = () => import("./people/proof");
const loadEntrance: Lazy = () => import("./views/entrance");
const loadSecondFactor: Lazy = () => import("./views/second-factor");
const LAZY: Partial<Record<View, Lazy>> = {
  agents: () => import("./views/agents"),
  compare: () => import("./views/compare"),
  presets: () => import("./views/presets"),
  schedules: () => import("./views/schedules"),
  runs: () => import("./views/runs"),
  settings: () => import("./views/settings"),
  status: () => import("./views/status"),
  account: () => import("./views/account"),
  admin: () => import("./views/admin"),
};

export function App() {
  if (isAtEntrance.value || isPersonWanted.value) return <LazyView key="entrance" load={loadEntrance} id={null} />;
  if (lacksFactor.value) return <LazyView key="second-factor" load={loadSecondFactor} id={null} />;
  return (
    <div class={`app ${isSidebarHidden.value ? "is-wide" : ""} ${isSidebarOpen.value ? "is-drawer-open" : ""}`}>
      <a class="skip" href="#main">
        {t().skip}
      </a>
      <Toasts />
      <Sidebar />
      <button
        type="button"
        class="backdrop"
        tabIndex={-1}
        aria-label={t().closeSidebar}
        onClick={() => {
          isSidebarOpen.value = false;
        }}
      />
      <main id="main" tabIndex={-1} inert={isSidebarOpen.value}>
        <AwayBanner />
        <NotSavingBanner />
        <CurrentView />
      </main>
      {isHelpOpen.value && <Later load={HELP} />}
      {wanted.value !== null && <Later load={LEAVE_DIALOG} to={wanted.value} />}
      {isKeyWanted.value && <KeyDialog />}
      {proofWanted.value && <Later load={PROOF} />}
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
    lazily(load).then(
      (module) => setLoaded(() => module.default),
      () => setFailed(true),
    );
  }, [load]);
  if (hasFailed) return <Empty title={t().viewFailed} text={t().reloadPage} />;
  return Loaded ? <Loaded id={id} /> : <output class="loading" aria-label={t().loading} />;
}

function Lost() {
  return (
    <Empty title={t().pageNotFound}>
      <a class="button" href="/">
        {t().startNewChat}
      </a>
    </Empty>
  );
}
