/** The chat: what was said, what is being said, and where to say something. */
import { isGuest } from "../state/caller";
import { current, setupForNew } from "../state/current";
import { isDemo, modelForNew } from "../state/models";
import { sessions } from "../state/sessions";
import type { Transcript } from "../state/transcript";
import { Empty } from "../ui/empty";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";
import { Announcer } from "./announcer";
import { Composer } from "./composer";
import { Messages } from "./messages";
import { Queue } from "./queue";
import { SessionMenu } from "./session-menu";

export function Chat() {
  const transcript = current.value;
  const title = transcript ? titleOf(transcript) : t().newChat;
  const isRunning = transcript?.isRunning.value ?? false;
  usePageTitle(title, isRunning);
  return (
    <div class="chat">
      <ViewHeader title={title}>
        <SessionMenu />
      </ViewHeader>
      {transcript ? <Body key={transcript.id} transcript={transcript} /> : <Welcome />}
      {transcript && <Queue transcript={transcript} />}
      {!isGuest.value && transcript?.loading.value !== "missing" && <Composer key={transcript?.id ?? "new"} />}
      {transcript && <Announcer transcript={transcript} />}
    </div>
  );
}

/** A session takes its title from its first message, and the list knows it first. */
function titleOf({ id, session }: Transcript): string {
  return session.value?.title || sessions.value.find((each) => each.id === id)?.title || "";
}

function Body({ transcript }: { transcript: Transcript }) {
  switch (transcript.loading.value) {
    case "loading":
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
      return <Messages transcript={transcript} />;
  }
}

/** A newcomer's first answer comes from a demo model: what it is, and what to do about it. */
function DemoNotice() {
  if (!isDemo(setupForNew.value.model ?? modelForNew.value)) return null;
  return (
    <div class="demo-notice" role="note">
      <span>{t().demoNotice}</span>
      <a class="button small" href="/settings#add-provider">
        {t().addProvider}
      </a>
    </div>
  );
}

function Welcome() {
  if (isGuest.value) return <Empty title={t().people.guestWelcome} text={t().people.guestWelcomeMore} />;
  return (
    <div class="transcript welcome">
      <img src="/icon.svg" alt="" width="56" height="56" />
      <h2>{t().welcome}</h2>
      <p>{t().welcomeMore}</p>
      <DemoNotice />
    </div>
  );
}
