import{$ as e,Ir as t,Jr as n,M as r,N as i,V as a,Vn as o,j as s,nr as c,tr as l}from"./start.js";async function u(e){try{await a(p(await t.session(e))),c(n().copied)}catch(e){l(e)}}async function d(e,n){try{let r=await(n===`json`?t.wholeSession(e):t.session(e)),i=(r.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;n===`json`?g(`${i}.json`,JSON.stringify(r,null,2),`application/json`):g(`${i}.md`,p(r),`text/markdown`)}catch(e){l(e)}}async function f(e){try{let n=[];for(let r of e)n.push(p(await t.session(r)));g(`chats.md`,n.join(`
---

`),`text/markdown`)}catch(e){l(e)}}function p(e){return`${[`# ${e.title||n().untitled}`,...e.system?[h(e.system)]:[],...r(e.messages).map(m)].join(`

`)}\n`}function m({message:t,earlier:r}){let a=t.role===`user`?n().you:i([...r,t]).join(`, `)||t.role,c=e(t.outcome,null),l=[...[...r,t].flatMap(({content:e})=>o(e)).map(()=>n().imageAlt),t.edited?n().editedByPerson:``,c?.label??``].filter(Boolean);return[`## ${a}`,s([...r,t]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};