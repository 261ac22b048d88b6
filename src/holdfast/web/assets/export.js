import{A as e,B as t,Ir as n,Jr as r,M as i,Q as a,Vn as o,er as s,j as c,tr as l}from"./start.js";async function u(e){try{await t(p(await n.session(e))),l(r().copied)}catch(e){s(e)}}async function d(e,t){try{let r=await(t===`json`?n.wholeSession(e):n.session(e)),i=(r.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?g(`${i}.json`,JSON.stringify(r,null,2),`application/json`):g(`${i}.md`,p(r),`text/markdown`)}catch(e){s(e)}}async function f(e){try{let t=[];for(let r of e)t.push(p(await n.session(r)));g(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){s(e)}}function p(e){return`${[`# ${e.title||r().untitled}`,...e.system?[h(e.system)]:[],...c(e.messages).map(m)].join(`

`)}\n`}function m({message:t,earlier:n}){let s=t.role===`user`?r().you:i([...n,t]).join(`, `)||t.role,c=a(t.outcome,null),l=[...[...n,t].flatMap(({content:e})=>o(e)).map(()=>r().imageAlt),t.edited?r().editedByPerson:``,c?.label??``].filter(Boolean);return[`## ${s}`,e([...n,t]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};