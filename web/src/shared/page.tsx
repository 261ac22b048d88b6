/** The page of a link: a chat that can only be read, live. */
import { render } from "preact";
import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import { Reasoning, Waiting } from "../chat/answer";
import { textOf } from "../chat/content";
import { tellOutcome } from "../chat/outcome";
import { joined, Segments, segmentsOf } from "../chat/segments";
import { picturesOf } from "../files/attached";
import { AttachedFiles } from "../files/shown";
import type { LiveRun } from "../state/live";
import "../styles/shared.css";
import type { Message } from "../types";
import { CopyButton } from "../ui/copy";
import { Empty } from "../ui/empty";
import { Later } from "../ui/later";
import { Toasts } from "../ui/toasts";
import { t } from "../words";
import { s } from "../words/sharing";
import { LinkedSession } from "./linked-session";

const NEAR_THE_END = 120;
const PICTURES = () => import("../files/answer-pictures");

export function show(root: HTMLElement): void {
  render(<SharedPage token={location.pathname.split("/")[2] ?? ""} />, root);
}

function SharedPage({ token }: { token: string }) {
  const session = useMemo(() => new LinkedSession(token), [token]);
  useEffect(() => {
    session.follow();
    return () => session.close();
  }, [session]);
  const view = session.view.value;
  const title = view?.title || s().sharedChat;
  useEffect(() => {
    document.title = `${title} · Holdfast`;
  }, [title]);
  return (
    <div class="shared-page">
      <Toasts />
      <main>
        <Standing session={session} />
        {view && session.state.value !== "ended" && session.state.value !== "sign-in" && (
          <>
            <header>
              <h1 dir="auto">{title}</h1>
              <p class="note">
                {["Holdfast", location.host, view.owner && s().by(view.owner), s().readOnly]
                  .filter(Boolean)
                  .join(" · ")}
              </p>
              {(view.follows || session.live.value) && (
                <p>
                  <span class="badge fine live-sign">{session.live.value ? s().inProgress : s().isLive}</span>
                </p>
              )}
            </header>
            <Said session={session} messages={view.messages} />
          </>
        )}
      </main>
    </div>
  );
}

function Standing({ session }: { session: LinkedSession }) {
  switch (session.state.value) {
    case "loading":
      return <output class="loading" aria-label={t().loading} />;
    case "ended":
      return <Empty title={s().ended} text={s().endedWhy} />;
    case "sign-in":
      return (
        <Empty title={s().signInFirst} text={s().signInWhy}>
          <a class="button" href="/">
            {s().openSignIn}
          </a>
        </Empty>
      );
    case "busy":
      return (
        <p class="note" role="status">
          {s().busy}
        </p>
      );
    case "failed":
      return <Empty title={t().chatFailed} text={session.problem.value} />;
    default:
      return null;
  }
}

function Said({ session, messages }: { session: LinkedSession; messages: Message[] }) {
  const live = session.live.value;
  live?.version.value;
  const isAtEnd = innerHeight + scrollY > document.documentElement.scrollHeight - NEAR_THE_END;
  useLayoutEffect(() => {
    if (live && isAtEnd) scrollTo(0, document.documentElement.scrollHeight);
  });
  const results = new Map(messages.flatMap((each) => (each.tool_call_id ? [[each.tool_call_id, each] as const] : [])));
  const shown = messages.filter(({ role, automatic }) => role !== "tool" && !automatic);
  const continued = live ? shown.find(({ id }) => id === live.messageId) : undefined;
  return (
    <div class="transcript">
      {session.view.value?.system && <Instructions text={session.view.value.system} />}
      {shown
        .filter((message) => message !== continued)
        .map((message) =>
          message.role === "assistant" ? (
            <SharedAnswer key={message.id} message={message} results={results} live={null} path={session.path} />
          ) : message.role === "user" ? (
            <SharedQuestion key={message.id} message={message} session={session} />
          ) : (
            <Instructions key={message.id} text={textOf(message.content)} />
          ),
        )}
      {live && (
        <SharedAnswer
          key={live.messageId}
          message={continued ?? null}
          results={results}
          live={live}
          path={session.path}
          model={session.view.value?.active_run?.model}
        />
      )}
      <p class="sr-only" role="status">
        {live ? s().inProgress : session.view.value?.messages.length ? s().complete : ""}
      </p>
    </div>
  );
}

function Instructions({ text }: { text: string }) {
  return (
    <details class="reasoning">
      <summary>{t().systemPrompt}</summary>
      <div class="as-written" dir="auto">
        {text}
      </div>
    </details>
  );
}

function SharedQuestion({ message, session }: { message: Message; session: LinkedSession }) {
  const text = textOf(message.content);
  return (
    <article class="message user" data-message={message.id} aria-label={message.author || s().userSaid}>
      {message.author && <p class="author">{message.author}</p>}
      <div class="bubble">
        <AttachedFiles content={message.content} session={session.path} />
        {text && (
          <div class="said" dir="auto">
            {text}
          </div>
        )}
      </div>
    </article>
  );
}

interface SharedAnswerProps {
  /** The model of an answer that is being written. */
  model?: string;
  message: Message | null;
  results: ReadonlyMap<string, Message>;
  live: LiveRun | null;
  path: string;
}

function SharedAnswer({ message, results, live, path, model }: SharedAnswerProps) {
  const reasoning = [message?.reasoning, live?.reasoning].filter(Boolean).join("\n\n");
  const parts = [...(message ? [segmentsOf(message, results)] : []), ...(live ? [live.segments] : [])];
  const pictures = [...picturesOf(message?.content ?? null), ...(live?.pictures ?? [])];
  const told = live ? null : tellOutcome(message?.outcome ?? null, null);
  return (
    <article
      class={`message answer ${live ? "is-live" : ""}`}
      data-message={live?.messageId ?? message?.id}
      data-outcome={live ? undefined : message?.outcome}
      aria-label={t().response}
      aria-busy={live ? "true" : undefined}
    >
      {reasoning && <Reasoning text={reasoning} isGoingOn={live?.isThinking ?? false} />}
      <Segments segments={joined(parts)} isGoingOn={live !== null} />
      {pictures.length > 0 && <Later load={PICTURES} urls={pictures} session={path} />}
      {live && !live.text && !live.reasoning && <Waiting notices={[]} />}
      {told && (
        <div class={`outcome ${told.kind}`} role="note">
          <strong>{told.label}.</strong>
        </div>
      )}
      {live && model && (
        <footer>
          <span class="note">{model}</span>
        </footer>
      )}
      {!live && message && (
        <footer>
          <CopyButton text={textOf(message.content)} label={t().copyResponse} />
          <span class="note">{message.model}</span>
        </footer>
      )}
    </article>
  );
}
