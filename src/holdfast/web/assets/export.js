import{D as e,O as t,W as n,gr as r,ir as i,k as a,wn as o}from"./start.js";async function s(e,t){try{let n=await(t===`json`?i.wholeSession(e):i.session(e)),r=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?f(`${r}.json`,JSON.stringify(n,null,2),`application/json`):f(`${r}.md`,l(n),`text/markdown`)}catch(e){o(e)}}async function c(e){try{let t=[];for(let n of e)t.push(l(await i.session(n)));f(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){o(e)}}function l(e){return`${[`# ${e.title||r().untitled}`,...e.system?[d(e.system)]:[],...t(e.messages).map(u)].join(`

`)}\n`}function u({message:t,earlier:i}){let o=t.role===`user`?r().you:a([...i,t]).join(`, `)||t.role,s=n(t.outcome,null);return[`## ${o}`,e([...i,t]),...s?[`*${s.label}.*`]:[]].join(`

`)}function d(e){return e.replace(/^/gm,`> `)}function f(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{l as asMarkdown,c as exportAll,s as exportAs};