/** Why a sign-in with an identity provider failed, and what to do, in each language. Other codes have the general words. */
import { type Language, t } from ".";

const en = {
  no_account:
    "You have no account on this server, or it is disabled. Ask an administrator, or sign in as someone else at your provider.",
  oidc_unavailable:
    "Your identity provider could not be reached. Try again in a few minutes. If this keeps happening, ask an administrator.",
  oidc_failed:
    "Your identity provider did not confirm who you are, or it took more than ten minutes. Sign in again, in this browser.",
  other:
    "Signing in did not work. Try again. If this keeps happening, ask an administrator: the server's log has the reason.",
};

type SignInErrors = typeof en;

const de: SignInErrors = {
  no_account:
    "Sie haben kein Konto auf diesem Server, oder es ist gesperrt. Fragen Sie einen Administrator, oder melden Sie sich beim Anbieter als jemand anderes an.",
  oidc_unavailable:
    "Ihr Identitätsanbieter ist nicht erreichbar. Versuchen Sie es in einigen Minuten erneut. Tritt das wiederholt auf, fragen Sie einen Administrator.",
  oidc_failed:
    "Ihr Identitätsanbieter hat nicht bestätigt, wer Sie sind, oder es dauerte länger als zehn Minuten. Melden Sie sich in diesem Browser noch einmal an.",
  other:
    "Die Anmeldung hat nicht funktioniert. Versuchen Sie es erneut. Tritt das wiederholt auf, fragen Sie einen Administrator: Der Grund steht im Protokoll des Servers.",
};

const ar: SignInErrors = {
  no_account: "ليس لديك حساب على هذا الخادم، أو أنه معطّل. اسأل المسؤول، أو سجّل الدخول لدى المزوّد بحساب آخر.",
  oidc_unavailable: "تعذّر الوصول إلى مزوّد الهوية. حاول مرة أخرى بعد دقائق. إذا تكرر ذلك فاسأل المسؤول.",
  oidc_failed: "لم يؤكد مزوّد الهوية هويتك، أو استغرق ذلك أكثر من عشر دقائق. سجّل الدخول مرة أخرى في هذا المتصفح.",
  other: "لم ينجح تسجيل الدخول. حاول مرة أخرى. إذا تكرر ذلك فاسأل المسؤول: السبب مذكور في سجل الخادم.",
};

const ALL: Record<Language, SignInErrors> = { en, de, ar };

/** The sentence of a code. A code that is not known is not shown: anyone can make a link with one. */
export function signInErrorText(code: string): string {
  t(); // who draws with it is drawn again when the language changes
  const words = ALL[document.documentElement.lang as Language] ?? en;
  return Object.hasOwn(words, code) ? words[code as keyof SignInErrors] : words.other;
}
