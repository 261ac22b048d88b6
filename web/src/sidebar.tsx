/** The list of sessions: search, pinned ones first, then by date; the ones with a run going on say so. */

import {
  Activity,
  CalendarClock,
  CircleUser,
  Columns2,
  Ellipsis,
  FolderInput,
  type IconNode,
  LogOut,
  Pencil,
  Pin,
  PinOff,
  Search,
  Settings,
  ShieldUser,
  SquarePen,
  Trash2,
} from "lucide";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { found } from "./chat/found";
import { choose, chosen, organized } from "./filing/chosen";
import { newChat } from "./keyboard";
import { withoutMarks } from "./markdown/plain";
import { unread } from "./notifications/unread";
import { leave } from "./people/passing";
import { navigate, place, type View } from "./router";
import { caller, isAdmin, isGuest, isPerson } from "./state/caller";
import { grouped } from "./state/dates";
import { isSidebarOpen } from "./state/preferences";
import {
  hasMore,
  isFiltered,
  listState,
  loadMoreSessions,
  loadSessions,
  query,
  removeWithUndo,
  rename,
  sessions,
  setPinned,
} from "./state/sessions";
import { complain } from "./state/toasts";
import type { ListedSession, SearchHit } from "./types";
import { useElement } from "./ui/element";
import { Icon } from "./ui/icon";
import { Later } from "./ui/later";
import { Menu, MenuItem } from "./ui/menu";
import { t } from "./words";

/** What the arrow keys lead through: chats, or the boxes by which they are chosen. */
const LINES = ".session a, .session input[type=checkbox]";
const WITH_ME = () => import("./shared/with-me");
const SHELF = () => import("./filing/shelf");
const FOUND = () => import("./compare/found");

export function Sidebar() {
  return (
    <nav class="sidebar" aria-label={t().chats}>
      <header>
        <a class="brand" href="/">
          <img src="/icon.svg" alt="" width="24" height="24" />
          Holdfast
        </a>
        {!isGuest.value && (
          <button
            type="button"
            class="quiet icon-button"
            aria-label={t().newChat}
            title={t().newChat}
            onClick={newChat}
          >
            <Icon node={SquarePen} />
          </button>
        )}
      </header>
      <SearchBox />
      <SessionList />
      <footer>
        {!isGuest.value && <ViewLink view="compare" icon={Columns2} name={t().compare} />}
        {!isGuest.value && <ViewLink view="runs" icon={Activity} name={t().runs} />}
        {!isGuest.value && <ViewLink view="schedules" icon={CalendarClock} name={t().schedules} />}
        {isAdmin.value && <ViewLink view="admin" icon={ShieldUser} name={t().administration} />}
        <ViewLink view="settings" icon={Settings} name={t().settings} />
        {isPerson.value && <Person name={caller.value?.name ?? ""} />}
      </footer>
    </nav>
  );
}

function ViewLink({ view, icon, name }: { view: View; icon: IconNode; name: string }) {
  return (
    <a
      href={`/${view}`}
      class={place.value.view === view ? "is-current" : undefined}
      onClick={() => {
        isSidebarOpen.value = false;
      }}
    >
      <Icon node={icon} />
      <span>{name}</span>
    </a>
  );
}

/** Who is signed in, and the way out. */
function Person({ name }: { name: string }) {
  return (
    <div class="person">
      <ViewLink view="account" icon={CircleUser} name={name} />
      <button
        type="button"
        class="quiet icon-button"
        aria-label={t().signOut}
        title={t().signOut}
        onClick={() => leave().catch(complain)}
      >
        <Icon node={LogOut} />
      </button>
    </div>
  );
}

function SearchBox() {
  const [text, setText] = useState(query.value);
  // With each drawing, not after it: a letter that is typed until then would be taken away again.
  useLayoutEffect(() => {
    const timer = setTimeout(() => {
      query.value = text.trim();
    }, 150);
    return () => clearTimeout(timer);
  }, [text]);
  useLayoutEffect(() => {
    if (query.value === "") setText(""); // a new chat ends the search
  }, [query.value]);
  return (
    <div class="search">
      <Icon node={Search} size={16} />
      <input
        id="search"
        type="search"
        placeholder={t().search}
        aria-label={t().searchChats}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape" && text) {
            event.preventDefault();
            setText("");
          }
          if (event.key === "ArrowDown") {
            event.preventDefault();
            document.querySelector<HTMLElement>(LINES)?.focus();
          }
        }}
      />
    </div>
  );
}

function SessionList() {
  if (listState.value === "loading") return <output class="sessions loading" aria-label={t().loading} />;
  if (listState.value === "failed" && !sessions.value.length) {
    return (
      <div class="sessions hint">
        {t().listFailed}{" "}
        <button type="button" class="link" onClick={() => loadSessions()}>
          {t().tryAgain}
        </button>
      </div>
    );
  }
  const isEmpty = !sessions.value.length;
  const isFlat = Boolean(query.value) || isFiltered();
  return (
    <div class="sessions" onKeyDown={walk}>
      <Later key="shelf" load={SHELF} />
      {isEmpty && !query.value && <p class="hint">{t().noChats}</p>}
      {grouped(isFlat ? sessions.value : sessions.value.filter(({ folder }) => !folder)).map(([label, group]) => (
        <section key={label} aria-label={label}>
          <h2>{label}</h2>
          <ul>
            {group.map((session) => (
              <SessionLine key={session.id} session={session} />
            ))}
          </ul>
        </section>
      ))}
      {hasMore.value && <More key={sessions.value.length} />}
      {query.value ? <Later key="found" load={FOUND} isAlone={isEmpty} /> : <Later key="with me" load={WITH_ME} />}
    </div>
  );
}

/** The next chats, when their place comes into view, or is asked for. */
function More() {
  const button = useElement<HTMLButtonElement>();
  const load = () => loadMoreSessions().catch(complain);
  useEffect(() => {
    const near = new IntersectionObserver(([entry]) => entry?.isIntersecting && load(), { rootMargin: "300px" });
    near.observe(button.current);
    return () => near.disconnect();
  }, []);
  return (
    <button ref={button} type="button" class="link more" onClick={load}>
      {t().showMore}
    </button>
  );
}

export function SessionLine({ session }: { session: ListedSession }) {
  const [isRenaming, setRenaming] = useState(false);
  const link = useElement<HTMLAnchorElement>();
  const isToFocus = useRef(false);
  useLayoutEffect(() => {
    if (isToFocus.current && !isRenaming) link.current.focus(); // where the keyboard came from
    isToFocus.current = false;
  }, [isRenaming]);
  const isCurrent = place.value.id === session.id;
  const title = session.title || t().newChat;
  const remove = () => {
    removeWithUndo(session.id, "", () => isCurrent && navigate(`/s/${session.id}`));
    if (isCurrent) navigate("/");
  };
  const onRenamed = (isByKey: boolean) => {
    isToFocus.current = isByKey;
    setRenaming(false);
  };
  if (isRenaming) return <Rename session={session} onDone={onRenamed} />;
  if (chosen.value) return <Choice session={session} title={title} isOn={chosen.value.has(session.id)} />;
  return (
    <li class={`session ${isCurrent ? "is-current" : ""}`} data-id={session.id}>
      <a
        ref={link}
        href={`/s/${session.id}${session.hit ? `#${session.hit.message_id}` : ""}`}
        aria-current={isCurrent ? "page" : undefined}
        title={title}
        onClick={(event) => {
          if (event.shiftKey) {
            event.preventDefault(); // a new window otherwise
            return choose(session.id, true);
          }
          isSidebarOpen.value = false;
          found.value = session.hit;
        }}
      >
        <span class="title" dir="auto">
          {title}
        </span>
        {session.hit && <Excerpt hit={session.hit} />}
        <Standing session={session} />
      </a>
      <Menu label={t().actionsFor(title)} icon={Ellipsis} isPassedBy>
        <MenuItem
          icon={session.pinned ? PinOff : Pin}
          onClick={() => setPinned(session.id, !session.pinned).catch(complain)}
        >
          {session.pinned ? t().unpin : t().pin}
        </MenuItem>
        <MenuItem icon={Pencil} onClick={() => setRenaming(true)}>
          {t().rename}
        </MenuItem>
        <MenuItem
          icon={FolderInput}
          onClick={() => {
            organized.value = [session.id];
          }}
        >
          {t().organize}
        </MenuItem>
        <MenuItem icon={Trash2} kind="bad" onClick={remove}>
          {t().delete}
        </MenuItem>
      </Menu>
    </li>
  );
}

/** A chat while several can be chosen. */
function Choice({ session: { id }, title, isOn }: { session: ListedSession; title: string; isOn: boolean }) {
  return (
    <li class="session" data-id={id}>
      <label>
        <input type="checkbox" checked={isOn} onClick={(event) => choose(id, event.shiftKey)} />
        <span class="title" dir="auto">
          {title}
        </span>
      </label>
    </li>
  );
}

/** The sentence that the search has found. */
function Excerpt({ hit }: { hit: SearchHit }) {
  return (
    <span class="excerpt" dir="auto">
      {hit.excerpt.map(({ text, match }, index) =>
        match ? <mark key={index}>{text}</mark> : withoutMarks(text, index === 0),
      )}
    </span>
  );
}

/** Whether a chat has a response running, needs its user, or has something new. */
function Standing({ session }: { session: ListedSession }) {
  const news = unread.value.get(session.id);
  if (!session.active_run && !news) return null;
  const [name, label] = session.active_run
    ? session.needs_approval
      ? ["needs-you", t().needsApproval]
      : ["running", t().generating]
    : [`news ${news}`, t().news[news ?? "completed"]];
  return (
    <span class={name} title={label}>
      <span class="sr-only">{label}</span>
    </span>
  );
}

function Rename({ session, onDone }: { session: ListedSession; onDone: (isByKey: boolean) => void }) {
  const input = useElement<HTMLInputElement>();
  const isByKey = useRef(false);
  useLayoutEffect(() => input.current.select(), []);
  const save = () => {
    const title = input.current.value.trim();
    if (title && title !== session.title) rename(session.id, title).catch(complain);
    onDone(isByKey.current);
  };
  return (
    <li class="session">
      <input
        ref={input}
        class="rename"
        aria-label={t().title}
        dir="auto"
        defaultValue={session.title}
        onBlur={save}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.value = session.title;
          if (event.key !== "Enter" && event.key !== "Escape") return;
          event.preventDefault();
          isByKey.current = true;
          event.currentTarget.blur();
        }}
      />
    </li>
  );
}

/** Up and down lead from chat to chat, sideways to what can be done with one and back. */
function walk(event: KeyboardEvent): void {
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") return aside(event);
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const links = [...document.querySelectorAll<HTMLElement>(LINES)];
  const at = links.indexOf(document.activeElement as HTMLElement);
  if (at < 0) return;
  event.preventDefault();
  if (event.key === "ArrowUp" && at === 0) document.querySelector<HTMLElement>("#search")?.focus();
  else links[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
}

function aside(event: KeyboardEvent): void {
  const from = event.target as HTMLElement;
  const to = from.parentElement?.matches(".session") && (from.matches("a") ? "button" : "a");
  if (!to) return;
  event.preventDefault();
  from.parentElement?.querySelector<HTMLElement>(to)?.focus();
}
