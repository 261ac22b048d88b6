/** The chat: what was said, what is being said, and where to say something. */
import { place, TEMPORARY } from "../router";
import { isGuest } from "../state/caller";
import type { Conversation } from "../state/conversation";
import { beginning, current } from "../state/current";
import { isDemo, isTest, modelForNew } from "../state/models";
import { setupForNew } from "../state/presets";
import { titles } from "../state/sessions";
import { Empty } from "../ui/empty";
import { Later } from "../ui/later";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";
import { Announcer } from "./announcer";
import { Composer } from "./composer";
import { Messages } from "./messages";
import { SessionMenu } from "./session-menu";
import { TemporaryNote, TemporarySwitch } from "./temporary";
import { SendingMessage } from "./user-message";

const QUEUE = () => import("./queue");

export function Chat() {
  const transcript = current.value;
  const isTemporary = place.value.id === TEMPORARY;
  const title = isTemporary ? t().temporaryChat : transcript ? titleOf(transcript) : t().newChat;
  const isRunning = transcript?.isRunning.value ?? false;
  usePageTitle(title, isRunning);
  return (
    <div class={`chat ${isTemporary ? "is-temporary" : ""}`}>
      <ViewHeader title={title}>
        {(isTemporary || !transcript) && !isGuest.value && <TemporarySwitch isOn={isTemporary} />}
        <SessionMenu />
      </ViewHeader>
      {isTemporary && transcript?.head.value && <TemporaryNote />}
      {transcript ? <Body key={transcript.id} transcript={transcript} /> : <Beginning isTemporary={isTemporary} />}
      {transcript && transcript.queued.value.length > 0 && <Later load={QUEUE} transcript={transcript} />}
      {transcript?.shared.value?.may === "read" ? (
        <p class="only-reading" role="note">
          {t().onlyReading}
        </p>
      ) : (
        mayCompose(transcript, isTemporary) && <Composer key={transcript?.id ?? "new"} />
      )}
      {transcript && <Announcer transcript={transcript} />}
    </div>
  );
}

/** What is written in a temporary chat before that has been loaded would become a stored one. */
function mayCompose(transcript: Conversation | null, isTemporary: boolean): boolean {
  if (isGuest.value || transcript?.loading.value === "missing") return false;
  return transcript !== null || !isTemporary;
}

/** A session takes its title from its first message, and the feed of the list tells it first. */
function titleOf({ id, session }: Conversation): string {
  return session.value?.title || titles.value.get(id) || "";
}

/** No chat yet: a welcome, until something is said. */
function Beginning({ isTemporary }: { isTemporary: boolean }) {
  if (beginning.value === null) return <Welcome isTemporary={isTemporary} />;
  return (
    <div class="transcript">
      <div class="column">
        <SendingMessage content={beginning.value} />
      </div>
    </div>
  );
}

function Body({ transcript }: { transcript: Conversation }) {
  switch (transcript.loading.value) {
    case "loading":
      if (transcript.sending.value !== null) return <Messages transcript={transcript} />;
      return <output class="transcript loading" aria-label={t().loading} />;
    case "missing":
      return (
        <Empty title={t().chatNotFound} text={t().chatNotFoundWhy}>
          <a class="button" href="/">
            {t().startNewChat}
          </a>
        </Empty>
      );
    case "failed":
      return (
        <Empty title={t().chatFailed} text={transcript.problem.value}>
          <button type="button" onClick={() => transcript.load()}>
            {t().tryAgain}
          </button>
        </Empty>
      );
    default:
      if (transcript.isTemporary && !transcript.head.value) return <Welcome isTemporary />;
      return <Messages transcript={transcript} />;
  }
}

/** A newcomer's first answer comes from a demo model: what it is, and what to do about it. */
function DemoNotice() {
  const model = setupForNew.value.model ?? modelForNew.value;
  if (!model || !isDemo(model)) return null;
  return (
    <div class="demo-notice" role="note">
      <span>{isTest(model) ? t().testNotice : t().demoNotice}</span>
      <a class="button small" href="/settings#add-provider">
        {t().addProvider}
      </a>
    </div>
  );
}

function Welcome({ isTemporary }: { isTemporary: boolean }) {
  if (isGuest.value) return <Empty title={t().guestWelcome} text={t().guestWelcomeMore} />;
  return (
    <div class="transcript welcome">
      <img src="/icon.svg" alt="" width="56" height="56" />
      <h2>{isTemporary ? t().temporaryChat : t().welcome}</h2>
      <p>{isTemporary ? t().temporaryNote : t().welcomeMore}</p>
      <DemoNotice />
    </div>
  );
}
